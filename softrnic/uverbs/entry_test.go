package uverbs

import (
	"encoding/binary"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A bind with rights that the NIC does not have, as ZERO_BASED, is a bind that the NIC refuses for
// its rights, not a malformed entry.
func TestBindWithOtherRights(t *testing.T) {
	for _, c := range []struct {
		rights  uint32
		refused bool
	}{
		{uint32(verbs.RemoteWrite | verbs.RemoteRead), false},
		{flushGlobal, false},
		{uint32(verbs.RemoteWrite) | ZeroBased, true},
		{uint32(verbs.RemoteWrite) | 1<<7, true},
		{uint32(verbs.RemoteWrite) | 1<<20, true},
	} {
		slot := make([]byte, SendSlot(1, 0))
		var wr verbs.SendWR
		var sges [1]verbs.SGE
		for op, o := range operations {
			if o == verbs.OpBindMW {
				binary.NativeEndian.PutUint32(slot[sendOp:], uint32(op))
			}
		}
		binary.NativeEndian.PutUint64(slot[sendBound:], 8)
		binary.NativeEndian.PutUint32(slot[sendRights:], c.rights)
		_, ok := Send(slot, make([]byte, len(slot)), &wr, sges[:])
		if refused := wr.BindAccess&^verbs.RemoteRights != 0; !ok || refused != c.refused {
			t.Errorf("rights %#x: decoded %v, rights %v", c.rights, ok, wr.BindAccess)
		}
	}
}
