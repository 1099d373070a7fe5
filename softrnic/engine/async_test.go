package engine

import (
	"net/netip"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// asyncCases raise each asynchronous event at b, whose queue pair is connected to a's.
var asyncCases = map[verbs.AsyncKind]func(t *testing.T, p *pair){
	verbs.EventQPFatal: func(t *testing.T, p *pair) { // a receive without a region
		if err := p.b.qp.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{{Addr: 1, Length: 8, LKey: 1}}}}); err != nil {
			t.Fatal(err)
		}
		p.post(t, p.a, verbs.SendWR{Flags: verbs.Inline, Data: []byte("x")})
	},
	verbs.EventQPReqErr: func(t *testing.T, p *pair) { // a message longer than its receive
		recvInto(t, p.b, 0, 1)
		p.post(t, p.a, verbs.SendWR{Flags: verbs.Inline, Data: []byte("xx")})
	},
	verbs.EventQPAccessErr: func(t *testing.T, p *pair) {
		p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key ^ 1})
	},
	verbs.EventCommEst: func(t *testing.T, p *pair) { // the first packet in RTR
		if err := p.b.qp.ToReset(); err != nil {
			t.Fatal(err)
		}
		for _, err := range []error{
			p.b.qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite}),
			p.b.qp.ToRTR(0, verbs.ToRTR{DestQPN: p.a.qp.Num(), DestGID: p.a.e.cfg.GIDs[0], RecvPSN: testPSN, PathMTU: verbs.MTU1024}),
		} {
			if err != nil {
				t.Fatal(err)
			}
		}
		p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.b.base, RKey: p.b.key})
	},
	verbs.EventSQDrained: func(t *testing.T, p *pair) {
		p.post(t, p.b, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: p.a.base, RKey: p.a.key})
		if err := p.b.qp.ToSQD(0, &p.b.out); err != nil {
			t.Fatal(err)
		}
		if len(drainEvents(p.b.e)) != 0 {
			t.Error("drained before the ACK")
		}
	},
	verbs.EventCQErr: func(t *testing.T, p *pair) {
		for range 1025 { // one more than the queue holds
			p.post(t, p.b, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: p.a.base, RKey: p.a.key})
			p.settle(t)
		}
	},
	verbs.EventPortErr:    func(_ *testing.T, p *pair) { p.b.e.SetLink(false) },
	verbs.EventPortActive: func(_ *testing.T, p *pair) { p.b.e.SetLink(false); p.b.e.SetLink(true) },
	verbs.EventGIDChange: func(_ *testing.T, p *pair) {
		gids := append(p.b.e.Config().GIDs, verbs.GIDOf(netip.MustParseAddr("10.0.0.77")))
		p.b.e.SetGIDs(gids)
		p.b.e.SetGIDs(gids) // no change
	},
	verbs.EventDeviceFatal: func(_ *testing.T, p *pair) { p.b.e.Down(0) },
	verbs.EventSRQLimit: func(t *testing.T, p *pair) {
		srq := newSRQ(t, p.b, verbs.SRQInit{})
		a, _ := sharedPair(t, p, srq, verbs.RC)
		if err := srq.PostRecv(make([]verbs.RecvWR, 2)); err != nil {
			t.Fatal(err)
		}
		if err := srq.SetLimit(2); err != nil {
			t.Fatal(err)
		}
		if err := a.PostSend(0, []verbs.SendWR{{}}, &p.a.out); err != nil {
			t.Fatal(err)
		}
	},
	verbs.EventQPLastWQE: func(t *testing.T, p *pair) { // the error concerns the connection, not the application
		_, b := sharedPair(t, p, newSRQ(t, p.b, verbs.SRQInit{}), verbs.RC)
		f := wire.Frame{Eth: b.route.eth, IPv4: b.route.ipv4, UDP: b.route.udp}
		f.Eth.Dst, f.Eth.Src = f.Eth.Src, f.Eth.Dst
		f.IPv4.Dst, f.IPv4.Src = f.IPv4.Src, f.IPv4.Dst
		f.BTH = wire.BTH{Opcode: wire.RCSendMiddle, PKey: 0xffff, DestQP: b.Num(), PSN: testPSN}
		p.b.e.Frame(0, 0, packetio.Frame{Data: f.AppendTo(nil)}, &p.b.out)
	},
}

// Each asynchronous event is raised once, by its cause, and names the queue pair or queue that it
// concerns.
func TestAsyncEvents(t *testing.T) {
	for kind := verbs.EventQPFatal; kind <= verbs.EventGIDChange; kind++ {
		t.Run(kind.String(), func(t *testing.T) {
			p := newPair(t, nil)
			drainEvents(p.b.e)
			make := asyncCases[kind]
			if make == nil {
				t.Fatal("no case")
			}
			make(t, p)
			p.settle(t)
			p.b.e.EndBatch(0, &p.b.out)
			var got []verbs.AsyncEvent
			for ev, ok := p.b.e.Events.NextAsyncEvent(); ok; ev, ok = p.b.e.Events.NextAsyncEvent() {
				if ev.Kind == kind {
					got = append(got, ev)
				}
			}
			if len(got) != 1 {
				t.Fatalf("raised %d times", len(got))
			}
			ofQP := slices.Contains([]verbs.AsyncKind{
				verbs.EventQPFatal, verbs.EventQPReqErr, verbs.EventQPAccessErr, verbs.EventCommEst, verbs.EventSQDrained, verbs.EventQPLastWQE,
			}, kind)
			if (got[0].QPN != 0) != ofQP || (got[0].CQ != 0) != (kind == verbs.EventCQErr) || (got[0].SRQ != 0) != (kind == verbs.EventSRQLimit) {
				t.Errorf("%+v", got[0])
			}
		})
	}
}
