package engine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Packets carry the traffic class of their connection; without one, that of the NIC's
// configuration.
func TestTOS(t *testing.T) {
	for _, c := range []struct {
		of, named, want uint8
	}{{0, 0, 0}, {0, 0x68, 0x68}, {0x22, 0, 0x22}, {0x22, 0x68, 0x68}} {
		for gid := range 2 { // IPv4, IPv6
			a := newSide(t, newEngine(t, "a", 1, macA, func(cfg *Config) { cfg.TOS = c.of }, ipA, ip6A))
			b := newSide(t, newEngine(t, "b", 2, macB, func(cfg *Config) { cfg.TOS = 0x88 }, ipB, ip6B))
			p := connectPair(t, a, b, gid, verbs.MTU1024)
			for _, err := range []error{
				a.qp.ToReset(), a.qp.ToInit(verbs.ToInit{}),
				a.qp.ToRTR(0, verbs.ToRTR{
					DestQPN: b.qp.Num(), DestGID: b.e.cfg.GIDs[gid], SourceGID: gid, PathMTU: verbs.MTU1024, TrafficClass: c.named,
				}),
				a.qp.ToRTS(0, verbs.ToRTS{Timeout: 14}),
			} {
				if err != nil {
					t.Fatal(err)
				}
			}
			p.post(t, a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte{1}, RemoteAddr: b.base, RKey: b.key})
			f := parse(t, a.out.Frames[0].Data)
			got := f.IPv4.TOS
			if f.V6 {
				got = f.IPv6.TrafficClass
			}
			if got != c.want || f.V6 != (gid == 1) {
				t.Errorf("NIC %#x, connection %#x, GID %d: sent with %#x, want %#x", c.of, c.named, gid, got, c.want)
			}
		}
	}
}
