package cloversteer_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// The switch takes a WRITE for that of a node only if it fills a whole entry with a valid node that
// has no successor. Any other WRITE there makes it forget the node.
func TestWhichWritesAreNodes(t *testing.T) {
	whole := func(header layout.Word) []byte {
		b := make([]byte, 128)
		layout.Hardened.PutNode(b, header, 7, []byte("x"))
		return b
	}
	next := layout.Location{Handle: 9, Version: 1}
	for name, c := range map[string]struct {
		off   uint64
		data  []byte
		known bool
	}{
		"a node":                               {0, whole(layout.Header(1)), true},
		"a node with a successor":              {0, whole(layout.Superseded(1, next)), false},
		"a header that is not one":             {0, whole(0), false},
		"half a node, as long as a superblock": {0, whole(layout.Header(1))[:64], false},
		"a node in the middle":                 {64, whole(layout.Header(1)), false},
		"a word":                               {0, whole(layout.Header(1))[:8], false},
	} {
		b := ready(t, rules.Rule{})
		before := b.m.Stats()
		b.pass(b.write(2, va(1)+c.off, c.data))
		s := b.m.Stats()
		if known := s.Nodes == before.Nodes+1; known != c.known {
			t.Errorf("%s: taken for a node: %v", name, known)
		}
		if s.Overwritten == before.Overwritten && !c.known {
			t.Errorf("%s: the node is not forgotten", name)
		}
		f := b.read(3, 1) // node 1 has a place before the tail no more
		b.pass(f)
	}
}

// A node that is written on a connection of which the switch sees only one flow is not known
// afterwards: the server may not have executed the WRITE.
func TestNodeOnAnUntrackedConnection(t *testing.T) {
	b := ready(t, rules.Rule{})
	data := make([]byte, 128)
	layout.Hardened.PutNode(data, layout.Header(1), 7, []byte("x"))
	f := b.write(2, va(1), data)
	f.BTH.DestQP = 0x99 // not a queue pair that the switch knows
	before := b.m.Stats()
	b.pass(f)
	if s := b.m.Stats(); s.Nodes != before.Nodes || s.Overwritten != before.Overwritten+1 {
		t.Errorf("%+v", s)
	}
}

// An append on such a connection makes the switch forget the chain that it may change.
func TestAppendOnAnUntrackedConnection(t *testing.T) {
	for name, other := range map[string]bool{"to a node of the chain": false, "of a node of the chain": true} {
		b := ready(t, rules.Rule{})
		f := b.cas(2, 2, 1, 9, 1)
		if other {
			f = b.cas(2, 9, 1, 2, 1)
		}
		f.BTH.DestQP = 0x99
		b.pass(f)
		b.pass(b.read(3, 1)) // not steered: the tail is forgotten
		if s := b.m.Stats(); s.Unsure != 1 || s.Forgotten != 1 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}
