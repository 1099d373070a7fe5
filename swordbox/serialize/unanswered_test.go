package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A NIC with a wide window has sent more WRITEs than the PSN map remembers, and the server has
// answered none of them. When the NIC retransmits one, the switch sends no acknowledgement.
func TestUnansweredWritesBehindAWideWindow(t *testing.T) {
	for _, sent := range []int{1<<20 + 10, 1<<21 + 10} {
		r := newRig(t, rigConfig{clients: 1, rules: atomicsRule(1)})
		c := r.connect(0)
		var req []byte
		r.tap = func(up bool, port int, data []byte) bool {
			if up && port == 0 {
				req = append(req[:0], data...)
			}
			return true
		}
		for range 4 {
			c.post(c.write(512, 0, 64))
			r.run(time.Millisecond)
			c.done(verbs.Success)
		}
		f := parse(req)
		first := f.BTH.PSN.Next()
		var buf []byte
		var out packetio.Batch
		pass := func(psn wire.PSN) {
			r.now += 100
			f.BTH.PSN, f.BTH.AckReq = psn, true
			buf = f.AppendTo(buf[:0])
			out.Reset()
			r.sw.Frame(r.now, 0, packetio.Frame{Data: buf}, &out)
		}
		for i := range sent {
			pass(first.Add(i))
			if len(out.Frames) != 1 || out.Frames[0].Port != 1 {
				t.Fatalf("packet %d: %d frames", i, len(out.Frames))
			}
		}
		for _, again := range []int{0, 1, sent / 2} {
			pass(first.Add(again))
			for _, o := range out.Frames {
				if a := parse(o.Data); o.Port == 0 {
					t.Errorf("%d sent and none answered, %d sent again: the client is told %v, PSN +%d",
						sent, again, a.BTH.Opcode, wire.Diff(a.BTH.PSN, first))
				}
			}
		}
	}
}
