package transport

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cq"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/reason"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// process is the part of a process in XRC: a protection domain with a region, and a shared receive queue
// with its completion queue.
type process struct {
	pd  mem.PD
	mem *mem.Region
	buf []byte
	srq *SRQ
	cq  *cq.CQ
}

func (p *process) sge(off, n int) verbs.SGE {
	return verbs.SGE{Addr: p.mem.Base() + uint64(off), Length: uint32(n), LKey: p.mem.LKey()}
}

// domain is an XRC domain that has the queues of all processes but the one with number foreign.
type domain struct {
	processes map[uint32]*process
	foreign   uint32
}

func (d *domain) Find(n uint32) (*SRQ, bool) {
	if p := d.processes[n]; p != nil {
		return p.srq, n != d.foreign
	}
	return nil, false
}

// newXRCPair returns an initiator and a target, whose NIC has three processes: 1 and 2 in the domain
// of the target, 3 outside.
func newXRCPair(t testing.TB, size int) (a, b *side, d *domain) {
	t.Helper()
	a = newSide(t, "a", 1, size, Config{QPN: 0x11, Type: verbs.XRCInitiator})
	b = &side{name: "b"}
	b.env = &Env{Mem: mem.New(rand.New(rand.NewPCG(2, 7)), 0), Counters: &b.counters}
	d = &domain{processes: make(map[uint32]*process), foreign: 3}
	for n := uint32(1); n <= 3; n++ {
		p := &process{buf: make([]byte, size)}
		var errs [4]error
		p.pd, errs[0] = b.env.Mem.AllocPD()
		p.mem, errs[1] = b.env.Mem.Reg(p.pd, p.buf, allAccess)
		p.cq, errs[2] = cq.New(cqDepth)
		p.srq, errs[3] = NewXRCSRQ(n, p.pd, p.cq, verbs.SRQInit{MaxWR: cqDepth})
		if err := errors.Join(errs[:]...); err != nil {
			t.Fatal(err)
		}
		d.processes[n] = p
	}
	var err error
	if b.qp, err = New(b.env, Config{QPN: 0x12, Type: verbs.XRCTarget, XRC: d}); err != nil {
		t.Fatal(err)
	}
	connect(t, a, b, defaultLink)
	return a, b, d
}

// Each operation reaches receives and memory of the process whose shared receive queue it names, and the
// completion of a receive goes to the completion queue of that shared receive queue (annex A14).
func TestXRCOperations(t *testing.T) {
	a, b, d := newXRCPair(t, 4096)
	for n := uint32(1); n <= 2; n++ {
		p := d.processes[n]
		for i := range a.buf {
			a.buf[i] = byte(i*7) ^ byte(n)
		}
		clear(p.buf)
		for id := range uint64(3) {
			if err := p.srq.PostRecv(&verbs.RecvWR{ID: id, SGL: []verbs.SGE{p.sge(2048, 1000)}}); err != nil {
				t.Fatal(err)
			}
		}
		at := func(off int) uint64 { return p.mem.Base() + uint64(off) }
		for id, wr := range []verbs.SendWR{
			{Op: verbs.OpSend, SGL: []verbs.SGE{a.sge(0, 700)}},
			{Op: verbs.OpSendImm, Imm: 0x1234, SGL: []verbs.SGE{a.sge(0, 64)}},
			{Op: verbs.OpWrite, SGL: []verbs.SGE{a.sge(0, 1000)}, RemoteAddr: at(0), RKey: p.mem.RKey()},
			{Op: verbs.OpWriteImm, Imm: 0x77, SGL: []verbs.SGE{a.sge(0, 600)}, RemoteAddr: at(1024), RKey: p.mem.RKey()},
			{Op: verbs.OpRead, SGL: []verbs.SGE{a.sge(2048, 1000)}, RemoteAddr: at(0), RKey: p.mem.RKey()},
			{Op: verbs.OpFetchAdd, CompareAdd: 5, SGL: []verbs.SGE{a.sge(3200, 8)}, RemoteAddr: at(3200), RKey: p.mem.RKey()},
			{Op: verbs.OpCmpSwap, CompareAdd: 5, Swap: 9, SGL: []verbs.SGE{a.sge(3208, 8)}, RemoteAddr: at(3200), RKey: p.mem.RKey()},
		} {
			wr.ID, wr.Flags, wr.RemoteSRQN = uint64(id), verbs.Signalled, n
			post(t, a, wr)
			settle(t, 0, a, b)
			if wc := onlyWC(t, a.scq); wc.Status != verbs.Success || wc.ID != uint64(id) {
				t.Fatalf("%v to %d: %+v", wr.Op, n, wc)
			}
		}
		if !bytes.Equal(p.buf[:1000], a.buf[:1000]) || !bytes.Equal(a.buf[2048:3048], a.buf[:1000]) || !bytes.Equal(p.buf[1024:1624], a.buf[:600]) {
			t.Errorf("the bytes of process %d differ", n)
		}
		if v, _ := p.mem.Load64(3200); v != 9 {
			t.Errorf("the word is %d", v)
		}
		var wc [8]verbs.WC
		if got := p.cq.Poll(wc[:]); got != 3 || wc[0].ByteLen != 700 || wc[1].Imm != 0x1234 || wc[2].Opcode != verbs.WCRecvWriteImm || wc[2].ByteLen != 600 {
			t.Errorf("process %d has %d completions: %+v", n, got, wc[:got])
		}
		for i := range 3 {
			if wc[i].Status != verbs.Success || wc[i].ID != uint64(i) || wc[i].QPN != 0x12 || wc[i].SrcQPN != 0x11 {
				t.Errorf("completion %d: %+v", i, wc[i])
			}
		}
	}
	if d.processes[3].cq.Len() != 0 {
		t.Error("a process that was not named has completions")
	}
}

// A request that names no shared receive queue, one of another domain or a broken one is refused, each with the
// NAK of its own; the order of the checks is that of the table (annex A14, IBTA 9.7.4.1/order).
func TestXRCRefusals(t *testing.T) {
	for name, x := range map[string]struct {
		srqn   uint32
		op     verbs.WROpcode
		before func(d *domain)
		status verbs.Status
		code   reason.Code
		event  verbs.AsyncKind
	}{
		"no queue":             {srqn: 9, status: verbs.RemInvReqErr, code: reason.NoSRQ, event: verbs.EventQPReqErr},
		"another domain":       {srqn: 3, status: verbs.RemAccessErr, code: reason.WrongXRCDomain, event: verbs.EventQPAccessErr},
		"a broken queue":       {srqn: 1, before: func(d *domain) { d.processes[1].srq.Break() }, status: verbs.RemOpErr, code: reason.BrokenSRQ, event: verbs.EventQPFatal},
		"domain before broken": {srqn: 3, before: func(d *domain) { d.processes[3].srq.Break() }, status: verbs.RemAccessErr, code: reason.WrongXRCDomain, event: verbs.EventQPAccessErr},
		"queue before key":     {srqn: 9, op: verbs.OpWrite, status: verbs.RemInvReqErr, code: reason.NoSRQ, event: verbs.EventQPReqErr},
		"key of another":       {srqn: 2, op: verbs.OpWrite, status: verbs.RemAccessErr, code: reason.RemotePD, event: verbs.EventQPAccessErr},
	} {
		t.Run(name, func(t *testing.T) {
			a, b, d := newXRCPair(t, 4096)
			if x.before != nil {
				x.before(d)
			}
			p := d.processes[1]
			post(t, a, verbs.SendWR{Op: x.op, SGL: []verbs.SGE{a.sge(0, 64)}, RemoteSRQN: x.srqn, RemoteAddr: p.mem.Base(), RKey: p.mem.RKey()})
			var events []verbs.AsyncEvent
			for range 4 {
				a.deliver(0, b)
				b.qp.FlushAcks(0, &b.out)
				events = append(events, b.out.Async...)
				b.deliver(0, a)
			}
			a.file()
			if wc := onlyWC(t, a.scq); wc.Status != x.status {
				t.Errorf("status %v, want %v", wc.Status, x.status)
			}
			if end, ok := b.qp.Notes().End(); !ok || end.Code != x.code {
				t.Errorf("the target notes %#x, want %#x", end.Code, x.code)
			}
			if len(events) == 0 || events[len(events)-1].Kind != x.event {
				t.Errorf("events %v, want %v", events, x.event)
			}
			if b.qp.State() != verbs.StateError {
				t.Errorf("the target is in %v", b.qp.State())
			}
		})
	}
}

// All packets of a message name the same shared receive queue. The receive that the message uses completes
// with an error, at its own completion queue (annex A14).
func TestXRCOneQueueAMessage(t *testing.T) {
	a, b, d := newXRCPair(t, 4096)
	p := d.processes[1]
	if err := p.srq.PostRecv(&verbs.RecvWR{ID: 5, SGL: []verbs.SGE{p.sge(0, 1000)}}); err != nil {
		t.Fatal(err)
	}
	post(t, a, verbs.SendWR{Op: verbs.OpSend, SGL: []verbs.SGE{a.sge(0, 600)}, RemoteSRQN: 1})
	for i := range a.out.Tx {
		if x := &a.out.Tx[i].Packet; x.XRCETH.SRQN != 1 || x.BTH.Opcode.Service() != wire.ServiceXRC {
			t.Errorf("packet %d is %v", i, x)
		}
	}
	a.out.Tx[1].Packet.XRCETH.SRQN = 2
	settle(t, 0, a, b)
	if wc := onlyWC(t, p.cq); wc.Status != verbs.RemInvReqErr || wc.ID != 5 {
		t.Errorf("the receive completes with %+v", wc)
	}
	if d.processes[2].cq.Len() != 0 {
		t.Error("the other queue has a completion")
	}
}

// A target takes no posts, an initiator no receives, and neither hears what only the other one does.
func TestXRCDirections(t *testing.T) {
	a, b, d := newXRCPair(t, 4096)
	if err := b.qp.PostSend(0, &verbs.SendWR{Op: verbs.OpSend}, &b.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a target sends: %v", err)
	}
	for _, s := range []*side{a, b} {
		if err := s.qp.PostRecv(&verbs.RecvWR{}); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s takes a receive: %v", s.name, err)
		}
	}
	if err := a.qp.PostSend(0, &verbs.SendWR{Op: verbs.OpSend, RemoteSRQN: 1 << 24}, &a.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("a number of 25 bits: %v", err)
	}
	for _, op := range []verbs.WROpcode{verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush} {
		if err := a.qp.PostSend(0, &verbs.SendWR{Op: op}, &a.out); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%v by XRC: %v", op, err)
		}
	}
	request := wire.Packet{BTH: wire.BTH{Opcode: wire.RCSendOnly | wire.ServiceXRC, PSN: 0x800000}, XRCETH: wire.XRCETH{SRQN: 1}}
	answer := wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck | wire.ServiceXRC, PSN: 0x100}}
	a.qp.Handle(0, &request, &a.out)
	b.qp.Handle(0, &answer, &b.out)
	if len(a.out.Tx)+len(b.out.Tx) != 0 || a.counters.RxUnsupported != 1 || b.counters.RxUnsupported != 1 {
		t.Errorf("%d and %d packets are dropped, %d answered", a.counters.RxUnsupported, b.counters.RxUnsupported, len(a.out.Tx)+len(b.out.Tx))
	}
	for name, cfg := range map[string]Config{
		"a target without domain":          {Type: verbs.XRCTarget},
		"an initiator with a domain":       {Type: verbs.XRCInitiator, XRC: d, SendCQ: a.scq, RecvCQ: a.rcq},
		"an initiator with a queue shared": {Type: verbs.XRCInitiator, SRQ: d.processes[1].srq, SendCQ: a.scq, RecvCQ: a.rcq},
	} {
		if _, err := New(a.env, cfg); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Under loss and repetition every message arrives once, and in order at each shared receive queue; a READ that is
// repeated within a message to another queue is answered.
func TestXRCLoss(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		a, b, d := newXRCPair(t, 4096)
		const messages = 40
		for n := uint32(1); n <= 2; n++ {
			for id := range uint64(messages) {
				if err := d.processes[n].srq.PostRecv(&verbs.RecvWR{ID: id, SGL: []verbs.SGE{d.processes[n].sge(0, 1024)}}); err != nil {
					t.Fatal(err)
				}
			}
		}
		var want [3][]uint32
		adds := 0
		for i := range uint32(messages) {
			n := 1 + r.Uint32N(2)
			p := d.processes[n]
			wr := verbs.SendWR{ID: uint64(i), Flags: verbs.Signalled, RemoteSRQN: n, RKey: p.mem.RKey()}
			switch r.IntN(4) {
			case 0:
				wr.Op, wr.SGL, wr.RemoteAddr = verbs.OpRead, []verbs.SGE{a.sge(1024, 900)}, p.mem.Base()
			case 1:
				wr.Op, wr.SGL, wr.RemoteAddr, wr.CompareAdd = verbs.OpFetchAdd, []verbs.SGE{a.sge(2048, 8)}, d.processes[n].mem.Base()+2048, 1
				adds++
			default:
				wr.Op, wr.Imm, wr.SGL = verbs.OpSendImm, i, []verbs.SGE{a.sge(0, int(r.Uint32N(1000)))}
				want[n] = append(want[n], i)
			}
			post(t, a, wr)
		}
		pass := func(from, to *side, now clock.Time) {
			from.file()
			for i := range from.out.Tx {
				copies := []int{0, 0, 1, 1, 1, 1, 1, 1, 1, 2}[r.IntN(10)]
				for range copies {
					to.qp.Handle(now, &from.out.Tx[i].Packet, &to.out)
				}
			}
			from.out.Reset()
		}
		var done []verbs.WC
		now := clock.Time(0)
		for range 20000 {
			pass(a, b, now)
			pass(b, a, now)
			var wc [16]verbs.WC
			done = append(done, wc[:a.scq.Poll(wc[:])]...)
			if len(done) == messages {
				break
			}
			now = now.Add(time.Millisecond)
			a.qp.Tick(now, &a.out)
			b.qp.Tick(now, &b.out)
		}
		if len(done) != messages {
			t.Fatalf("seed %d: %d of %d work requests complete; %v", seed, len(done), messages, a.qp.State())
		}
		for i, wc := range done {
			if wc.Status != verbs.Success || wc.ID != uint64(i) {
				t.Fatalf("seed %d: completion %d is %+v", seed, i, wc)
			}
		}
		sum := uint64(0)
		for n := 1; n <= 2; n++ {
			p := d.processes[uint32(n)]
			var wc [messages + 1]verbs.WC
			got := p.cq.Poll(wc[:])
			if got != len(want[n]) {
				t.Fatalf("seed %d: %d messages at queue %d, want %d", seed, got, n, len(want[n]))
			}
			for i, w := range want[n] {
				if wc[i].Imm != w || wc[i].ID != uint64(i) {
					t.Fatalf("seed %d: message %d at queue %d is %+v, want %d", seed, i, n, wc[i], w)
				}
			}
			v, _ := p.mem.Load64(2048)
			sum += v
		}
		if sum != uint64(adds) {
			t.Errorf("seed %d: %d additions, want %d", seed, sum, adds)
		}
	}
}

// A duplicate of a SEND, WRITE or atomic is answered after its shared receive queue has been destroyed, taken out of
// the domain or broken, because its answer needs none; a READ is not executed again without the protection
// domain of the queue (IBTA 9.7.4.1/duplicate).
func TestXRCDuplicateWithoutQueue(t *testing.T) {
	for name, end := range map[string]func(d *domain){
		"destroyed": func(d *domain) { d.processes[1].srq.Close(); delete(d.processes, 1) },
		"foreign":   func(d *domain) { d.foreign = 1 },
		"broken":    func(d *domain) { d.processes[1].srq.Break() },
	} {
		t.Run(name, func(t *testing.T) {
			a, b, d := newXRCPair(t, 4096)
			p := d.processes[1]
			if err := p.srq.PostRecv(&verbs.RecvWR{SGL: []verbs.SGE{p.sge(0, 64)}}); err != nil {
				t.Fatal(err)
			}
			var sent []wire.Packet
			for _, wr := range []verbs.SendWR{
				{Op: verbs.OpSend, SGL: []verbs.SGE{a.sge(0, 64)}},
				{Op: verbs.OpWrite, SGL: []verbs.SGE{a.sge(0, 64)}, RemoteAddr: p.mem.Base()},
				{Op: verbs.OpFetchAdd, CompareAdd: 5, SGL: []verbs.SGE{a.sge(64, 8)}, RemoteAddr: p.mem.Base() + 64},
				{Op: verbs.OpRead, SGL: []verbs.SGE{a.sge(128, 64)}, RemoteAddr: p.mem.Base()},
			} {
				wr.RemoteSRQN, wr.RKey = 1, p.mem.RKey()
				post(t, a, wr)
				x := a.out.Tx[0].Packet
				x.Payload, x.BTH.AckReq = bytes.Clone(x.Payload), true
				sent = append(sent, x)
				settle(t, 0, a, b)
			}
			end(d)
			for i, want := range []wire.Opcode{wire.RCAck, wire.RCAck, wire.RCAtomicAck, 0} {
				b.out.Reset()
				b.qp.Handle(0, &sent[i], &b.out)
				b.qp.FlushAcks(0, &b.out)
				if want == 0 {
					if len(b.out.Tx) != 0 {
						t.Errorf("the READ is answered by %v", b.out.Tx[0].Packet.BTH.Opcode)
					}
					continue
				}
				if len(b.out.Tx) != 1 || b.out.Tx[0].Packet.BTH.Opcode != want|wire.ServiceXRC {
					t.Errorf("%v: %d answers", sent[i].BTH.Opcode, len(b.out.Tx))
				}
			}
			if v, _ := p.mem.Load64(64); v != 5 || b.counters.ReplayedAtomics != 1 || b.qp.State() != verbs.StateRTS {
				t.Errorf("the word is %d after %d replays, in %v", v, b.counters.ReplayedAtomics, b.qp.State())
			}
		})
	}
}
