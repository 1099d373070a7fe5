package operator

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	networkingv1 "k8s.io/api/networking/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/rdmalab/rdmalab/kube/api/v1alpha1"
	"github.com/rdmalab/rdmalab/kube/rackspec"
	"github.com/rdmalab/rdmalab/rackfile"
)

// annotationMade is the hash of what a workload was made from.
const annotationMade = "rdmalab.io/made"

// LeafAccount is the name of the leaves' ServiceAccount in the namespace of a rack, and of their ClusterRole.
const LeafAccount = "rdmalab-leaf"

// secretSize is the size of a rack's secret in bytes.
const secretSize = 32

// wanted makes the objects that a rack needs.
type wanted struct {
	*v1alpha1.Rack
	rack   *rackfile.Rack
	image  string
	pull   corev1.PullPolicy // "" means IfNotPresent
	logs   string            // the format of their logs; "" means text
	leaves []v1alpha1.RackLeaf
}

// meta returns the head of an object of the rack.
func (w *wanted) meta(name string) metav1.ObjectMeta {
	return metav1.ObjectMeta{Namespace: w.Namespace, Name: name, Labels: map[string]string{v1alpha1.LabelRack: w.Name}}
}

// objects returns all of them, in the order in which they are made.
func (w *wanted) objects() ([]client.Object, error) {
	text, err := w.rack.Encode()
	if err != nil {
		return nil, err
	}
	secret := make([]byte, secretSize)
	if _, err := rand.Read(secret); err != nil {
		return nil, err
	}
	list := []client.Object{
		&corev1.ConfigMap{ObjectMeta: w.meta(w.content()), Immutable: ptr(true), Data: map[string]string{"rack.json": string(text)}},
		&corev1.Secret{ObjectMeta: w.meta(w.content()), Immutable: ptr(true), Data: map[string][]byte{"secret": secret}},
		&corev1.ServiceAccount{ObjectMeta: w.meta(w.account())},
		&rbacv1.RoleBinding{
			ObjectMeta: w.meta(w.account()), RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: LeafAccount},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: w.Namespace, Name: w.account()}},
		},
		w.policy(), w.daemonSet(),
	}
	for i := range w.rack.Hosts {
		s, err := w.statefulSet(&w.rack.Hosts[i])
		if err != nil {
			return nil, err
		}
		list = append(list, s)
	}
	for _, o := range list {
		if err := mark(o); err != nil {
			return nil, err
		}
	}
	return list, nil
}

// own returns a name for an object that the operator makes and cannot read. The Rack's UID is in it, so that it is not
// that of an object of a former Rack, or of one that was there before.
func (w *wanted) own(what string) string {
	uid, _, _ := strings.Cut(string(w.UID), "-")
	return w.Name + "-" + uid + "-" + what
}

// content returns the name of the ConfigMap with the description, and of the Secret.
func (w *wanted) content() string { return w.own("rack") }

// account returns the name of the ServiceAccount of the rack's leaves. The admission policy knows it by its end.
func (w *wanted) account() string { return w.own(LeafAccount) }

// mark notes in a workload what it was made from.
func mark(o client.Object) error {
	text, err := json.Marshal(o)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(text)
	switch o.(type) {
	case *appsv1.DaemonSet, *appsv1.StatefulSet:
		o.SetAnnotations(map[string]string{annotationMade: hex.EncodeToString(sum[:8])})
	}
	return nil
}

// policy lets only leaves of the rack reach its trunks, where the cluster's network enforces that.
func (w *wanted) policy() *networkingv1.NetworkPolicy {
	protocol := corev1.ProtocolUDP
	if w.rack.Fabric.CarrierName() == rackfile.CarrierTCP {
		protocol = corev1.ProtocolTCP
	}
	first := intstr.FromInt32(rackfile.DefaultTrunkPort)
	last := int32(rackfile.DefaultTrunkPort + rackspec.MaxNodes*rackspec.MaxNodes)
	leaves := metav1.LabelSelector{MatchLabels: map[string]string{v1alpha1.LabelRack: w.Name, v1alpha1.LabelRole: v1alpha1.RoleLeaf}}
	return &networkingv1.NetworkPolicy{ObjectMeta: w.meta(w.own("trunks")), Spec: networkingv1.NetworkPolicySpec{
		PodSelector: leaves, PolicyTypes: []networkingv1.PolicyType{networkingv1.PolicyTypeIngress},
		Ingress: []networkingv1.NetworkPolicyIngressRule{{
			From:  []networkingv1.NetworkPolicyPeer{{PodSelector: &leaves}},
			Ports: []networkingv1.NetworkPolicyPort{{Protocol: &protocol, Port: &first, EndPort: &last}},
		}},
	}}
}

// daemonSet runs the leaves on the nodes that were chosen.
func (w *wanted) daemonSet() *appsv1.DaemonSet {
	labels := map[string]string{v1alpha1.LabelRack: w.Name, v1alpha1.LabelRole: v1alpha1.RoleLeaf}
	var nodes []string
	for i := range w.leaves {
		nodes = append(nodes, w.leaves[i].Spec.Node)
	}
	c := w.container("leaf", leafCPU, "leaf", "--rack", w.Name)
	c.Env = []corev1.EnvVar{
		field("NODE_NAME", "spec.nodeName"), field("POD_NAMESPACE", "metadata.namespace"), field("POD_IP", "status.podIP"),
	}
	c.VolumeMounts = append(c.VolumeMounts, corev1.VolumeMount{Name: "secret", MountPath: "/etc/rdmalab-secret", ReadOnly: true})
	spec := w.pod(c, nodes)
	spec.ServiceAccountName, spec.AutomountServiceAccountToken = w.account(), ptr(true)
	mode := int32(0o400)
	spec.Volumes = append(spec.Volumes, corev1.Volume{Name: "secret", VolumeSource: corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{SecretName: w.content(), DefaultMode: &mode}}})
	return &appsv1.DaemonSet{ObjectMeta: w.meta(w.Name + "-leaf"), Spec: appsv1.DaemonSetSpec{
		Selector: &metav1.LabelSelector{MatchLabels: labels}, UpdateStrategy: appsv1.DaemonSetUpdateStrategy{Type: appsv1.OnDeleteDaemonSetStrategyType},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
				v1alpha1.AnnotationSwitch: w.Name, v1alpha1.AnnotationUsers: strings.Join(w.Spec.Users, ","),
			}},
			Spec: spec,
		},
	}}
}

// statefulSet runs a host on the node of its leaf. It has one Pod, which is never moved: the host's memory is in it.
func (w *wanted) statefulSet(h *rackfile.Host) (*appsv1.StatefulSet, error) {
	link, err := json.Marshal(rackspec.Link(w.rack, h))
	if err != nil {
		return nil, err
	}
	labels := map[string]string{v1alpha1.LabelRack: w.Name, v1alpha1.LabelRole: string(h.Role), v1alpha1.LabelHost: h.Name}
	node := ""
	for i := range w.leaves {
		if w.leaves[i].Spec.Leaf == w.rack.LeafOf(h) {
			node = w.leaves[i].Spec.Node
		}
	}
	one := int32(1)
	return &appsv1.StatefulSet{ObjectMeta: w.meta(w.Name + "-" + h.Name), Spec: appsv1.StatefulSetSpec{
		Replicas: &one, ServiceName: w.Name, PodManagementPolicy: appsv1.ParallelPodManagement, Selector: &metav1.LabelSelector{MatchLabels: labels},
		UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: labels, Annotations: map[string]string{
				v1alpha1.AnnotationRack: w.Name, v1alpha1.AnnotationHost: h.Name, v1alpha1.AnnotationLink: string(link),
			}},
			Spec: w.pod(w.container("host", hostCPU, "host", "--name", h.Name), []string{node}),
		},
	}}, nil
}

func field(name, path string) corev1.EnvVar {
	return corev1.EnvVar{Name: name, ValueFrom: &corev1.EnvVarSource{FieldRef: &corev1.ObjectFieldSelector{FieldPath: path}}}
}

func ptr[T any](v T) *T { return &v }
