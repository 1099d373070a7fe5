package engine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// failed returns the error of a call that returns a value, too.
func failed[T any](_ T, err error) error { return err }

// xrcPair is an initiator on one NIC and a target on the other one, with an XRC shared receive queue.
type xrcPair struct {
	*pair
	domain *XRCD
	from   *QP
	to     *QP
	srq    *SRQ
}

func newXRCPair(t *testing.T) *xrcPair {
	t.Helper()
	p := &xrcPair{pair: newPair(t, nil)}
	drainEvents(p.b.e)
	p.domain = new(XRCD)
	err := p.domain.Alloc(p.b.e)
	if err != nil {
		t.Fatal(err)
	}
	if p.from, err = p.a.e.CreateQP(p.a.pd, p.a.cq, p.a.cq, verbs.QPInit{Type: verbs.XRCInitiator}); err != nil {
		t.Fatal(err)
	}
	if p.to, err = p.domain.CreateTarget(verbs.QPInit{Type: verbs.XRCTarget}); err != nil {
		t.Fatal(err)
	}
	if p.srq, err = p.domain.CreateXRCSRQ(p.b.pd, p.b.cq, verbs.SRQInit{}); err != nil {
		t.Fatal(err)
	}
	connect(t, 0, p.from, p.to, 0, verbs.MTU1024)
	connect(t, 0, p.to, p.from, 0, verbs.MTU1024)
	return p
}

func (p *xrcPair) send(t *testing.T, n uint32, length int) {
	t.Helper()
	wr := verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(0, length)}, RemoteSRQN: n}
	if err := p.from.PostSend(p.now, []verbs.SendWR{wr}, &p.a.out); err != nil {
		t.Fatal(err)
	}
	p.settle(t)
}

// Requests of XRC pass through two NICs to the shared receive queue that they name. Its limit event is raised,
// and the completion queue of the shared receive queue has the completions (annex A14).
func TestXRC(t *testing.T) {
	p := newXRCPair(t)
	for i := range 4 {
		if err := p.srq.PostRecv([]verbs.RecvWR{{ID: uint64(i), SGL: []verbs.SGE{p.b.sge(4096*i, 4096)}}}); err != nil {
			t.Fatal(err)
		}
	}
	if err := p.srq.SetLimit(3); err != nil {
		t.Fatal(err)
	}
	attr, err := p.srq.Query()
	if err != nil {
		t.Fatal(err)
	}
	for i := range 4 {
		p.a.buf[0] = byte(0x50 + i)
		p.send(t, attr.ID, 3000)
		if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success {
			t.Fatalf("send %d: %+v", i, wc)
		}
		if wc := p.b.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success || wc[0].ID != uint64(i) || wc[0].QPN != p.to.Num() || p.b.buf[4096*i] != byte(0x50+i) {
			t.Fatalf("receive %d: %+v", i, wc)
		}
	}
	if got := drainEvents(p.b.e); len(got) != 1 || got[0] != verbs.EventSRQLimit {
		t.Errorf("events %v", got)
	}
	infos := p.b.e.Listing().QPs([]wire.QPN{p.to.Num()})
	if len(infos) != 1 || infos[0].Type.String() != "XRC-TGT" || infos[0].SendCQ != 0 || infos[0].PD != 0 {
		t.Errorf("the listing has %+v", infos)
	}
	if l := p.b.e.Listing().SRQs(); len(l) != 1 || !l[0].XRC {
		t.Errorf("the listing has %+v", l)
	}
}

// What is used is not destroyed, and a destroyed shared receive queue takes its completions with it.
func TestXRCEnds(t *testing.T) {
	p := newXRCPair(t)
	if err := p.srq.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{p.b.sge(0, 64)}}}); err != nil {
		t.Fatal(err)
	}
	p.send(t, p.srq.num, 64)
	wantErr(t, "domain in use", p.domain.Dealloc(), verbs.ErrBusy)
	wantErr(t, "a target by CreateQP", failed(p.b.e.CreateQP(p.b.pd, p.b.cq, p.b.cq, verbs.QPInit{Type: verbs.XRCTarget})), verbs.ErrInvalid)
	wantErr(t, "RC in a domain", failed(p.domain.CreateTarget(verbs.QPInit{})), verbs.ErrInvalid)
	wantErr(t, "an XRC SRQ under RC", failed(p.b.e.CreateQPOn(p.b.pd, p.b.cq, p.b.cq, p.srq, verbs.QPInit{})), verbs.ErrInvalid)
	if err := p.srq.Destroy(); err != nil {
		t.Fatal(err)
	}
	if wc := p.b.poll(t); len(wc) != 0 {
		t.Errorf("%+v is left", wc)
	}
	p.send(t, p.srq.num, 64)
	if wc := p.a.poll(t); len(wc) != 2 || wc[1].Status != verbs.RemInvReqErr {
		t.Errorf("a request to a queue that has gone: %+v", wc)
	}
	wantErr(t, "domain with a target", p.domain.Dealloc(), verbs.ErrBusy)
	p.to.FailSend(0, 1, nil, &p.b.out) // a hostile program rings for a queue that does not exist
	if err := p.to.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := p.domain.Dealloc(); err != nil {
		t.Fatal(err)
	}
	wantErr(t, "twice", p.domain.Dealloc(), verbs.ErrClosed)
	wantErr(t, "a target of a dead domain", failed(p.domain.CreateTarget(verbs.QPInit{Type: verbs.XRCTarget})), verbs.ErrClosed)
	if o := p.b.e.Tables.Objects(); o.QPs != 1 || o.SRQs != 0 {
		t.Errorf("%+v is left", o)
	}
}

// When the completion queue of an XRC shared receive queue overruns, the shared receive queue fails: an event, and
// a NAK for each target that names it. Other queues of the domain go on.
func TestXRCOverrun(t *testing.T) {
	p := newXRCPair(t)
	small, err := p.b.e.CreateCQ(1)
	if err != nil {
		t.Fatal(err)
	}
	srq, err := p.domain.CreateXRCSRQ(p.b.pd, small, verbs.SRQInit{})
	if err != nil {
		t.Fatal(err)
	}
	for range 8 {
		if err := srq.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{p.b.sge(0, 64)}}}); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		p.send(t, srq.num, 64)
		wc := p.a.poll(t)
		if len(wc) != 1 {
			t.Fatalf("send %d: %+v", i, wc)
		}
		if wc[0].Status == verbs.Success {
			continue
		}
		if wc[0].Status != verbs.RemOpErr {
			t.Errorf("send %d: %+v", i, wc)
		}
		if got := drainEvents(p.b.e); len(got) != 3 || got[0] != verbs.EventCQErr || got[1] != verbs.EventSRQErr || got[2] != verbs.EventQPFatal {
			t.Errorf("events %v", got)
		}
		return
	}
	t.Error("nothing overran")
}

// A shared receive queue is destroyed while a message is arriving in a receive of it: this receive gets no
// completion, neither by the next packet nor when the target is flushed.
func TestXRCDestroyedInAMessage(t *testing.T) {
	for name, flush := range map[string]bool{"next packet": false, "flush": true} {
		t.Run(name, func(t *testing.T) {
			p := newXRCPair(t)
			if err := p.srq.PostRecv([]verbs.RecvWR{{SGL: []verbs.SGE{p.b.sge(0, 4096)}}}); err != nil {
				t.Fatal(err)
			}
			packets := 0
			p.tap = func(from *side, _ packetio.Frame) bool {
				if from != p.a {
					return true
				}
				if packets++; packets != 2 {
					return true
				}
				if err := p.srq.Destroy(); err != nil {
					t.Error(err)
				}
				if flush {
					if err := p.to.ToError(p.now, &p.b.out); err != nil {
						t.Error(err)
					}
				}
				return !flush
			}
			wr := verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{p.a.sge(0, 3000)}, RemoteSRQN: p.srq.num}
			if err := p.from.PostSend(p.now, []verbs.SendWR{wr}, &p.a.out); err != nil {
				t.Fatal(err)
			}
			p.exchange(p.a, p.b)
			c := p.b.e.Counters()
			if packets < 2 || c.CqeErr+c.CqeFlushErr != 1 {
				t.Errorf("%d packets; the receive ended %d times with an error", packets, c.CqeErr+c.CqeFlushErr)
			}
			if wc := p.b.poll(t); len(wc) != 0 {
				t.Errorf("%+v comes from a queue that has gone", wc)
			}
		})
	}
}

// A packet in the direction in which a queue pair hears none is not counted as accepted.
func TestXRCWrongDirection(t *testing.T) {
	p := newXRCPair(t)
	for name, x := range map[string]struct {
		to   *side
		qp   *QP
		from *QP
		op   wire.Opcode
	}{
		"request to an initiator": {p.a, p.from, p.to, wire.RCSendOnly | wire.ServiceXRC},
		"response to a target":    {p.b, p.to, p.from, wire.RCAck | wire.ServiceXRC},
	} {
		before := *x.to.e.Counters()
		f := wire.Frame{Eth: x.from.route.eth, IPv4: x.from.route.ipv4, UDP: x.from.route.udp}
		f.BTH = wire.BTH{Opcode: x.op, PKey: 0xffff, DestQP: x.qp.Num(), PSN: testPSN}
		x.to.e.Frame(p.now, 0, packetio.Frame{Data: f.AppendTo(nil)}, &x.to.out)
		c := x.to.e.Counters()
		if c.RxUnsupported != before.RxUnsupported+1 || c.RcvdPkts != before.RcvdPkts {
			t.Errorf("%s: unsupported %d, accepted %d", name, c.RxUnsupported-before.RxUnsupported, c.RcvdPkts-before.RcvdPkts)
		}
	}
}

// The events of shared receive queues whose completion queue has overrun come in the order of their numbers.
func TestXRCOverrunOrder(t *testing.T) {
	p := newXRCPair(t)
	for range 20 {
		if _, err := p.domain.CreateXRCSRQ(p.b.pd, p.b.cq, verbs.SRQInit{MaxWR: 1}); err != nil {
			t.Fatal(err)
		}
	}
	p.b.cq.breakSRQs()
	n, last := 0, uint32(0)
	for ev, ok := p.b.e.Events.NextAsyncEvent(); ok; ev, ok = p.b.e.Events.NextAsyncEvent() {
		if n++; ev.Kind != verbs.EventSRQErr || ev.SRQ <= last {
			t.Errorf("%+v after queue %d", ev, last)
		}
		last = ev.SRQ
	}
	if n != 21 {
		t.Errorf("%d events, want 21", n)
	}
}
