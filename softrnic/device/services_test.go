package device

import (
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// family is the index of a GID of every device that openIPv6 makes.
type family int

const (
	global family = iota
	linkLocal
	mapped
)

// openIPv6 is openPair with devices that have an address of each family, and a neighbour table
// without the link-local ones.
func openIPv6(t *testing.T, spin time.Duration) (nodes [2]*node) {
	t.Helper()
	var ports [2]*memcable.Port
	ports[0], ports[1] = memcable.Pair(memcable.Config{})
	global := [2]netip.Addr{netip.MustParseAddr("fd77::1"), netip.MustParseAddr("fd77::2")}
	for i := range nodes {
		d, err := Open(Config{
			Port: ports[i], Waiter: memcable.NewWaiter(ports[i]), Spin: spin, Seed: uint64(i),
			Engine: engine.Config{
				Name: "nic", MAC: macs[i], Rand: rand.New(rand.NewPCG(uint64(i), 9)),
				GIDs:    []verbs.GID{verbs.GIDOf(global[i]), verbs.LinkLocalGID(macs[i]), verbs.GIDOf(ips[i])},
				Resolve: func(a netip.Addr) (wire.MAC, bool) { return macs[1-i], a == ips[1-i] || a == global[1-i] },
			},
		})
		must(t, err)
		t.Cleanup(func() { must(t, d.Close()) })
		nodes[i] = newNode(t, d.Context())
	}
	return nodes
}

// bringUp connects two queue pairs over a family.
func bringUp(t *testing.T, a, b *node, q, peer verbs.QP, f family) {
	t.Helper()
	for _, x := range []struct {
		own, other verbs.QP
		to         *node
	}{{q, peer, b}, {peer, q, a}} {
		must(t, x.own.ToInit(verbs.ToInit{Access: fullAccess &^ verbs.LocalWrite}))
		must(t, x.own.ToRTR(verbs.ToRTR{
			DestQPN: x.other.QPN(), DestGID: x.to.ctx.Device().GIDs[f], SourceGID: int(f), PathMTU: verbs.MTU2048, MinRNRTimer: 1,
		}))
		must(t, x.own.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 7, RNRRetry: 7}))
	}
}

// Reliable connections over global, link-local and IPv4-mapped addresses move the same bytes.
func TestFamilies(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			n := openIPv6(t, spin)
			a, b := n[0], n[1]
			for f := global; f <= mapped; f++ {
				q, err := a.pd.CreateQP(verbs.QPInit{SendCQ: a.cq, RecvCQ: a.cq})
				must(t, err)
				peer, err := b.pd.CreateQP(verbs.QPInit{SendCQ: b.cq, RecvCQ: b.cq})
				must(t, err)
				bringUp(t, a, b, q, peer, f)
				must(t, a.mr.Store64(0, uint64(f)+40))
				must(t, q.PostSend(
					verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{a.mr.SGE(0, 5000)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()},
					verbs.SendWR{Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.mr.SGE(8000, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey(), CompareAdd: 2},
					verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(10000, 5000)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()},
				))
				if wc := a.one(t); wc.Status != verbs.Success {
					t.Fatalf("family %d: %+v", f, wc)
				}
				if v, err := a.mr.Load64(10000); err != nil || v != uint64(f)+42 {
					t.Errorf("family %d: %d, %v", f, v, err)
				}
			}
		})
	}
}

// Datagrams and an unreliable connection take their receives from one shared queue. The answer to a
// datagram goes to the address in its GRH area; the limit of the queue raises an event.
func TestDatagramsAndSharedReceives(t *testing.T) {
	n := openIPv6(t, 0)
	a, b := n[0], n[1]
	srq, err := b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 16})
	must(t, err)
	for i := range 4 {
		must(t, srq.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(i*1000, 1000)}}))
	}
	must(t, srq.SetLimit(2))
	const qkey = 0x1234
	datagrams := func(n *node, srq verbs.SRQ) verbs.QP {
		q, err := n.pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: n.cq, RecvCQ: n.cq, SRQ: srq})
		must(t, err)
		must(t, q.ToInit(verbs.ToInit{QKey: qkey}))
		must(t, q.ToRTR(verbs.ToRTR{}))
		must(t, q.ToRTS(verbs.ToRTS{}))
		return q
	}
	ask, answer := datagrams(a, nil), datagrams(b, srq)
	uc, err := a.pd.CreateQP(verbs.QPInit{Type: verbs.UC, SendCQ: a.cq, RecvCQ: a.cq})
	must(t, err)
	peer, err := b.pd.CreateQP(verbs.QPInit{Type: verbs.UC, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq})
	must(t, err)
	bringUp(t, a, b, uc, peer, global)
	for f := global; f <= mapped; f++ {
		ah, err := a.pd.CreateAH(verbs.AHAttr{DestGID: b.ctx.Device().GIDs[f], SourceGID: int(f)})
		must(t, err)
		must(t, ask.PostRecv(verbs.RecvWR{ID: 77, SGL: []verbs.SGE{a.mr.SGE(0, 100)}}))
		must(t, ask.PostSend(verbs.SendWR{Flags: verbs.Inline, Data: []byte("ping"), AH: ah, RemoteQPN: answer.QPN(), RemoteQKey: qkey}))
		wc := b.one(t)
		grh := make([]byte, verbs.GRHLen)
		must(t, b.mr.ReadAt(grh, int(f)*1000))
		g, err := verbs.ParseGRH(grh)
		must(t, err)
		if wc.ID != uint64(f) || wc.SrcQPN != ask.QPN() || wc.ByteLen != 44 || g.Source != a.ctx.Device().GIDs[f] {
			t.Fatalf("family %d: %+v from %+v", f, wc, g)
		}
		back, err := b.pd.CreateAH(verbs.AHAttr{DestGID: g.Source, SourceGID: int(f)})
		must(t, err)
		must(t, answer.PostSend(verbs.SendWR{Flags: verbs.Inline, Data: []byte("pong!"), AH: back, RemoteQPN: wc.SrcQPN, RemoteQKey: qkey}))
		if wc := a.one(t); wc.ID != 77 || wc.ByteLen != 45 {
			t.Fatalf("family %d: answer %+v", f, wc)
		}
	}
	must(t, uc.PostSend(verbs.SendWR{Flags: verbs.Inline, Data: []byte("last")}))
	if wc := b.one(t); wc.ID != 3 || wc.QPN != peer.QPN() {
		t.Errorf("unreliable connection: %+v", wc)
	}
	for {
		ev, err := b.ctx.NextAsyncEvent(b.in(20 * time.Second))
		must(t, err)
		if ev.Kind == verbs.EventSRQLimit {
			break
		}
	}
}
