package cloversteer_test

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
)

// A store with several copies of each node is left alone: the switch would follow one copy of a
// chain, and send an append to a node that another copy does not name.
func TestStoreWithCopiesIsNotSteered(t *testing.T) {
	b := newBox(t, rules.Rule{})
	s := layout.Superblock{Format: layout.Hardened, Generation: 9, Space: space}
	s.Space.Backups = 1
	data := make([]byte, layout.SuperblockLen)
	s.Put(data)
	b.pass(b.write(4, base, data))
	b.node(1, 1, 1, 7)
	b.append(1, 1, 2, 7)
	b.pass(b.read(2, 1))
	if st := b.m.Stats(); st.Unusable == 0 || st.Stores != 0 {
		t.Errorf("%+v", st)
	}
}
