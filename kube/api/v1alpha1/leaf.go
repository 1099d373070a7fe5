package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// RackLeaf is the part of a rack on one node. Its spec is written by the operator alone, its status by the leaf
// on that node alone. Its size grows with the hosts of the node, not with the rack, but for the trunks.
type RackLeaf struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   RackLeafSpec   `json:"spec"`
	Status RackLeafStatus `json:"status,omitempty"`
}

// RackLeafSpec says what the leaf is. Rack, Node, Leaf and Machine do not change.
type RackLeafSpec struct {
	// Rack is the name of the Rack. Node is that of the node, Leaf that of the switch, Machine that of the
	// machine in the rack's description.
	Rack    string `json:"rack"`
	Node    string `json:"node"`
	Leaf    string `json:"leaf"`
	Machine string `json:"machine"`
	// Version is that of the operator. A leaf of another version refuses the slice.
	Version string `json:"version"`
	// Hosts are the names of the hosts that are connected to the leaf.
	Hosts []string `json:"hosts,omitempty"`
}

// RackLeafList is a list of leaves.
type RackLeafList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`
	Items           []RackLeaf `json:"items"`
}

// RackLeafStatus is what the leaf says of itself.
type RackLeafStatus struct {
	// Address is the Pod's: the other leaves' trunks go there.
	Address string `json:"address,omitempty"`
	// Epoch is the Unix time in microseconds at which the switch has started.
	Epoch int64 `json:"epoch,omitempty"`
	// Version is that of the leaf's program.
	Version string `json:"version,omitempty"`
	// Refused says why the leaf does not run; empty if it runs.
	Refused string `json:"refused,omitempty"`
	// Ports are those of the hosts, Trunks those to the other leaves.
	Ports  []LinkStatus `json:"ports,omitempty"`
	Trunks []LinkStatus `json:"trunks,omitempty"`
}

// LinkStatus is the state of a port of a leaf.
type LinkStatus struct {
	Name string `json:"name"`
	Up   bool   `json:"up"`
	// Trouble says why the port is not up.
	Trouble string `json:"trouble,omitempty"`
}

// Up reports whether all ports and trunks of the leaf are up, and which is the first that is not, with the reason.
func (s *RackLeafStatus) Up() (ok bool, first string) {
	for _, list := range [][]LinkStatus{s.Trunks, s.Ports} {
		for _, l := range list {
			if l.Up {
				continue
			}
			if first = l.Name + " is not up"; l.Trouble != "" {
				first += " (" + l.Trouble + ")"
			}
			return false, first
		}
	}
	return s.Refused == "" && s.Epoch != 0, "its ports have not been reported"
}
