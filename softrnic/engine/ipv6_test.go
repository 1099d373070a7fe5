package engine

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Link-local addresses connect without a neighbour table, because they contain the MAC address.
func TestExchangeLinkLocal(t *testing.T) {
	unknown := func(c *Config) { c.Resolve = func(netip.Addr) (wire.MAC, bool) { return wire.MAC{}, false } }
	side := func(name string, seed uint64, mac wire.MAC) *side {
		return newSide(t, newEngine(t, name, seed, mac, unknown, ipA, verbs.LinkLocalGID(mac).Addr()))
	}
	p := connectPair(t, side("a", 1, macA), side("b", 2, macB), 1, verbs.MTU4096)
	verify(t, p)
}

// An IPv6 connection sends with the traffic class and hop limit of its attributes and a UDP
// checksum of 0. It accepts frames with any hop limit and traffic class, because routers may change
// these.
func TestIPv6Headers(t *testing.T) {
	a := newSide(t, newEngine(t, "a", 1, macA, nil, ipA, ip6A))
	b := newSide(t, newEngine(t, "b", 2, macB, nil, ipB, ip6B))
	up := func(q, peer *QP) {
		for _, err := range []error{
			q.ToInit(verbs.ToInit{Access: verbs.RemoteWrite}),
			q.ToRTR(0, verbs.ToRTR{
				DestQPN: peer.Num(), DestGID: peer.e.cfg.GIDs[1], SourceGID: 1, PathMTU: verbs.MTU1024, TrafficClass: 0x6a, HopLimit: 9,
			}),
			q.ToRTS(0, verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	up(a.qp, b.qp)
	up(b.qp, a.qp)
	p := &pair{a: a, b: b}
	frames := 0
	p.tap = func(from *side, f packetio.Frame) bool {
		frames++
		fr := parse(t, f.Data)
		if !fr.V6 || fr.IPv6.TrafficClass != 0x6a || fr.IPv6.HopLimit != 9 || fr.IPv6.FlowLabel != 0 || fr.UDP.Checksum != 0 ||
			fr.UDP.SrcPort != sourcePort(a.qp.Num(), b.qp.Num()) || !wire.CheckICRC(f.Data) {
			t.Errorf("frame %+v", fr)
		}
		// Routers and marking switches change fields that the ICRC does not cover.
		fr.IPv6.HopLimit, fr.IPv6.TrafficClass, fr.IPv6.FlowLabel, fr.BTH.FECN = 1, 3, 77, true
		to := b
		if from == b {
			to = a
		}
		to.e.Frame(p.now, 0, packetio.Frame{Data: fr.AppendTo(nil)}, &to.out)
		return false
	}
	p.post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("hello"), RemoteAddr: b.base, RKey: b.key})
	p.settle(t)
	if wc := a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success || string(b.buf[:5]) != "hello" || frames != 2 {
		t.Errorf("%+v, %d frames", wc, frames)
	}
}
