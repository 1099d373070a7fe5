package requester

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Consecutive requests of the same length leave the switch so that the link can send them as one
// super-frame, across the wrap of PSNs: WRITEs with and without copies, and READs.
func TestRequestsMerge(t *testing.T) {
	const n = 8
	for _, v6 := range []bool{false, true} {
		for name, f := range map[string]wire.Frame{
			"WRITE": {Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCWriteOnly}, Payload: payload(1, 256)}},
			"READ":  {Packet: wire.Packet{BTH: wire.BTH{Opcode: wire.RCReadRequest}}},
		} {
			for _, once := range []bool{false, true} {
				if once && f.Payload == nil {
					continue
				}
				r := newRig(t, 1, Config{})
				r.attach(0xffffff-n/2, n)
				r.c.Requests.link.To.V6 = v6
				r.sw.Step(r.now, &r.out, func(c *pipeline.Ctx) {
					for i := range n {
						q := f
						q.RETH = wire.RETH{VA: uint64(i) << 12, RKey: 9, Length: 256}
						if once {
							r.c.SubmitOnce(c, &q, Tag{})
						} else {
							r.c.Submit(c, &q, Tag{})
						}
					}
				})
				if got := packetio.FirstRun(r.out.Frames, 4096).Frames; got != n {
					t.Errorf("%s, IPv6 %v, once %v: %d of %d requests leave as one", name, v6, once, got, n)
				}
			}
		}
	}
}
