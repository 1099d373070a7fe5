package remotemem

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A chain without a completion, as after a failure of the NIC: no operation counts as executed, in
// whatever order their IDs are.
func TestAbandonedChain(t *testing.T) {
	for _, ids := range [][2]uint64{{1, 2}, {2, 1}} {
		f := &Fabric{ops: make([]*Op, 3), peers: []*peer{{pending: 2}}}
		var first, last Op
		first.WR.ID, last.WR.ID, last.before = ids[0], ids[1], &first
		f.ops[ids[0]], f.ops[ids[1]] = &first, &last
		f.abandon(0)
		if !first.Done || !last.Done || first.Status != verbs.WRFlushErr || last.Status != verbs.WRFlushErr || f.peers[0].pending != 0 {
			t.Errorf("IDs %d: %v and %v, %d pending", ids, first.Status, last.Status, f.peers[0].pending)
		}
	}
}
