package ring

import (
	"bytes"
	"reflect"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A slot with any bytes can be read without a panic; the entry that was read can be written and
// read again.
func FuzzEntry(f *testing.F) {
	slot := make([]byte, SendSlot(4, 64))
	PutSend(slot, &verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{{Addr: 2, Length: 3, LKey: 4}}, RKey: 5}, 6)
	f.Add(bytes.Clone(slot))
	PutSend(slot, &verbs.SendWR{ID: 1, Flags: verbs.Inline, Data: []byte("inline")}, 0)
	f.Add(bytes.Clone(slot))
	PutSend(slot, &verbs.SendWR{Op: verbs.OpMaskedCmpSwap, CompareAddMask: 1 << 63, SwapMask: 2}, 0)
	f.Add(bytes.Clone(slot))
	f.Fuzz(func(t *testing.T, b []byte) {
		slot := make([]byte, SendSlot(4, 64))
		copy(slot, b)
		var wr, again verbs.SendWR
		sges := make([]verbs.SGE, 10)
		if ah, ok := Send(slot, make([]byte, len(slot)), &wr, sges[:5]); ok {
			second := make([]byte, len(slot))
			PutSend(second, &wr, ah)
			if ah2, ok := Send(second, make([]byte, len(slot)), &again, sges[5:]); !ok || ah2 != ah || !reflect.DeepEqual(wr, again) {
				t.Errorf("%+v became %+v", wr, again)
			}
		}
		var recv verbs.RecvWR
		if Recv(slot[:RecvSlot(4)], make([]byte, len(slot)), &recv, sges[:5]) && len(recv.SGL) > 5 {
			t.Errorf("%d pieces", len(recv.SGL))
		}
		GetAccess(slot)
		wc := WC(slot)
		PutWC(slot, &wc)
		if WC(slot) != wc {
			t.Errorf("completion %+v became %+v", wc, WC(slot))
		}
	})
}
