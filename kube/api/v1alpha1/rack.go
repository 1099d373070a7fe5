package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Rack is a rack whose leaves and hosts are Pods.
type Rack struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RackSpec   `json:"spec"`
	Status RackStatus `json:"status,omitempty"`
}

// RackSpec says what the rack is. All of it is fixed when the Rack is made, but Users: another rack is another
// object.
type RackSpec struct {
	// Nodes is on how many nodes the rack is, from 2 to 16. Each has one leaf.
	Nodes int32 `json:"nodes"`
	// NodeSelector has the labels of nodes on which the rack may be; empty: any.
	NodeSelector map[string]string `json:"nodeSelector,omitempty"`
	// Rack is the text of a rack file without the keys machines and fabric. The machines of the rack are
	// called n0, n1, …, and their leaves leaf0, leaf1, …
	Rack string `json:"rack"`
	// Users are the namespaces whose Pods may use hosts of the rack, besides its own; "*" means all.
	Users []string `json:"users,omitempty"`
}

// RackList is a list of racks.
type RackList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []Rack `json:"items"`
}

// Phase is the state of a rack in one word.
type Phase string

// The phases of a rack.
const (
	PhaseRefused  Phase = "Refused"  // its text is no rack, or one that cannot be on Kubernetes
	PhasePending  Phase = "Pending"  // there are too few nodes for it
	PhaseStarting Phase = "Starting" // it was never Ready
	PhaseReady    Phase = "Ready"
	PhaseDegraded Phase = "Degraded" // it was Ready, and something of it is not
	PhaseDeleting Phase = "Deleting"
)

// Conditions of a rack.
const (
	ConditionAccepted  = "Accepted"  // the text is a rack
	ConditionPlaced    = "Placed"    // each leaf has a node that works and offers NICs
	ConditionConnected = "Connected" // all leaves report all ports and trunks as up
	ConditionVerified  = "Verified"  // all hosts answer, and each compute host has reached all memory hosts
)

// RackStatus is what the operator has seen of a rack.
type RackStatus struct {
	// ObservedGeneration is the generation of the Rack for which the rest holds.
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`
	Phase              Phase `json:"phase,omitempty"`
	// Leaves and Hosts say how many of how many are ready, as "2/2".
	Leaves string `json:"leaves,omitempty"`
	Hosts  string `json:"hosts,omitempty"`
	// WasReady says that the rack was Ready once.
	WasReady bool `json:"wasReady,omitempty"`
	// Lost are the hosts whose node does not work.
	Lost       []string           `json:"lost,omitempty"`
	Conditions []metav1.Condition `json:"conditions,omitempty"`
}
