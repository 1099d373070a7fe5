// Package v1alpha1 has the kinds of the group rdmalab.io: Rack, which a user writes, and RackLeaf, one for each
// rack and node, which the operator writes and the leaf on that node fills. The schemas are in
// config/crd.yaml.
package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// GroupVersion is that of the kinds in this package.
var GroupVersion = schema.GroupVersion{Group: "rdmalab.io", Version: "v1alpha1"}

// AddToScheme makes the kinds known to a scheme. It returns no error; the signature is that of all groups.
func AddToScheme(s *runtime.Scheme) error {
	s.AddKnownTypes(GroupVersion, &Rack{}, &RackList{}, &RackLeaf{}, &RackLeafList{})
	metav1.AddToGroupVersion(s, GroupVersion)
	return nil
}

// Names of annotations, labels and the resource.
const (
	// LabelRack is on all objects of a rack: its name.
	LabelRack = "rdmalab.io/rack"
	// LabelHost is on the Pod of a host: the host's name. LabelRole has its role, or "leaf".
	LabelHost = "rdmalab.io/host"
	LabelRole = "rdmalab.io/role"
	// RoleLeaf is the role of the Pod with a switch.
	RoleLeaf = "leaf"

	// AnnotationSwitch is on the Pod of a leaf: the name of its rack, in its namespace.
	AnnotationSwitch = "rdmalab.io/switch"
	// AnnotationUsers is on the Pod of a leaf: the namespaces whose Pods may use hosts of the rack, with
	// commas between them; "*" means all.
	AnnotationUsers = "rdmalab.io/users"
	// AnnotationRack is on the Pod of a host: the name of its rack; and on a user's Pod: NAMESPACE/NAME.
	AnnotationRack = "rdmalab.io/rack"
	// AnnotationHost names the host: of the Pod, or the one that a user's Pod wants.
	AnnotationHost = "rdmalab.io/host"
	// AnnotationLink is on the Pod of a host: its link, as JSON of node.Link.
	AnnotationLink = "rdmalab.io/link"

	// ResourceNIC is what users' Pods have in limits, and ResourcePort is what those of leaves and hosts have. A node
	// offers some while its plugin is installed, and none while it is not.
	ResourceNIC  = "rdmalab.io/nic"
	ResourcePort = "rdmalab.io/port"
	// Finalizer keeps a Rack until no Pod of it is left.
	Finalizer = "rdmalab.io/rack"
)
