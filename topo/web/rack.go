package web

import (
	"os"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/rackapi"
)

// The API's types of a rack's state.
type (
	Rack    = rackapi.Rack
	Node    = rackapi.Node
	Counter = rackapi.Counter
)

// gone is the state of a rack that is not there.
func gone(name string, err error) *Rack {
	return &Rack{Name: name, Time: time.Now().UnixMilli(), Gone: err.Error()}
}

// switchOf reports whether a name is that of a switch among the nodes.
func switchOf(nodes []Node, name string) bool {
	return slices.ContainsFunc(nodes, func(n Node) bool { return n.Name == name && n.IsSwitch() })
}

// firstSwitch returns the name of the first switch of a rack, whose links are recorded; that of the
// only switch if the rack's description cannot be read.
func firstSwitch(paths rackfile.Paths) string {
	text, err := os.ReadFile(paths.Spec())
	if err != nil {
		return rackfile.SwitchName
	}
	r, err := rackfile.Decode(text)
	if err != nil {
		return rackfile.SwitchName
	}
	return r.SwitchNames()[0]
}
