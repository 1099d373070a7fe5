package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// udRun is a run of unreliable datagrams: senders address several queue pairs of a server, with
// correct and with wrong Q_Keys. The run predicts, from the packets that reach the server, which
// datagrams its NIC must deliver.
type udRun struct {
	env     *env
	recvs   int // receives of each target; with shared, they are all in one queue
	shared  bool
	late    bool // the server posts each receive again only after a pause
	mtu     int  // path MTU of the server's port in bytes
	targets []*udTarget
	senders []*udSender
	byQPN   map[wire.QPN]*udTarget
	bySrc   map[wire.QPN]*udSender
	ready   bool // all targets have posted their receives
}

// udTarget is a queue pair of the server, to which datagrams are sent.
type udTarget struct {
	grip
	qp       verbs.QP
	qkey     uint32
	foretold []udArrival
	received int
	v6       bool // senders use the server's IPv6 address
}

// udArrival is a datagram that must be delivered: entry k in the list sent of a sender.
type udArrival struct {
	from *udSender
	k    int
}

// udSender is a queue pair of a client, which sends datagrams.
type udSender struct {
	run      *udRun
	host     string
	ops      int
	depth    int
	qkey     uint32 // the queue pair's own Q_Key, which is sent if a work request has a privileged one
	draw     *draw
	msgs     perf.Pattern
	firstPSN wire.PSN
	qpn      wire.QPN
	gid      verbs.GID
	sent     []datagram // the datagrams that are short enough to be sent, in their order
}

type datagram struct {
	k      int // number among all posted datagrams of the sender, which determines its content
	target int
	opens  bool // its Q_Key is that of the target, so that it may be delivered
	op     verbs.WROpcode
	size   int
	imm    uint32
}

// maxDatagram is the largest size of a datagram that a client posts. It is more than any port's
// MTU: a NIC does not send a datagram longer than the MTU, but completes it without an error
// (C10-93.1.1).
const maxDatagram = 4096 + 64

// privileged is the bit of a Q_Key in a work request that selects the queue pair's Q_Key instead
// (IBTA 10.2.5).
const privileged = 1 << 31

func (r *udRun) run(e *env) error {
	d := e.draw
	m := d.faultMix()
	*r = udRun{
		env: e, recvs: d.between(1, 24), shared: d.chance(0.4), late: d.chance(0.4), mtu: int(verbs.MTU4096),
		byQPN: make(map[wire.QPN]*udTarget), bySrc: make(map[wire.QPN]*udSender),
	}
	opt := simrack.Options{Delay: d.span(200*time.Nanosecond, 10*time.Microsecond), Window: one(d, 1, 16, 128), Wrap: e.watching(r.see)}
	if m.slow {
		opt.Rate, opt.Queue = int64(d.between(5, 40))*1e9, d.between(16, 64)
	}
	e.v6 = d.chance(0.3)
	for range d.between(1, 3) {
		r.targets = append(r.targets, &udTarget{qkey: d.Uint32() &^ privileged, v6: e.v6})
	}
	senders := d.between(1, 4)
	e.report.Plan = fmt.Sprintf("faults=%s senders=%d targets=%d recvs=%d shared=%v late=%v ipv6=%v", m.name, senders, len(r.targets), r.recvs, r.shared, r.late, e.v6)
	if err := e.build(transportRack, opt); err != nil {
		return err
	}
	e.disturb(m)
	for i := range senders {
		s := &udSender{
			run: r, host: fmt.Sprintf("cn%d", i%2), ops: d.between(50, 300), depth: d.between(1, 32),
			qkey: one(d, r.targets[0].qkey, d.Uint32()&^privileged), draw: newDraw(d.Uint64()), msgs: perf.Pattern{Seed: d.Uint64()},
		}
		r.senders = append(r.senders, s)
		e.client(s.host, fmt.Sprintf("ud-%d", i), s.client)
	}
	e.rack.Host(server).Go("ud", true, func(ctx verbs.Context) {
		if err := r.serve(ctx); err != nil {
			e.fail("server ud: %w", err)
		}
	})
	return e.complete(r, nil)
}

// setUp brings a UD queue pair to the state RTS.
func setUp(qp verbs.QP, qkey uint32, psn wire.PSN) error {
	err := qp.ToInit(verbs.ToInit{QKey: qkey})
	if err == nil {
		err = qp.ToRTR(verbs.ToRTR{})
	}
	if err == nil {
		err = qp.ToRTS(verbs.ToRTS{SendPSN: psn})
	}
	return err
}

// gidTo returns the index of the NIC's GID of the address family that the run uses.
func (r *udRun) gidTo(ctx verbs.Context) int {
	return slices.IndexFunc(ctx.Device().GIDs, func(g verbs.GID) bool {
		a := g.Addr()
		return a.Is6() == r.env.v6 && !a.IsLinkLocalUnicast()
	})
}

func (s *udSender) client(ctx verbs.Context) error {
	r := s.run
	end, err := newEndsOf(ctx, verbs.QPInit{Type: verbs.UD, MaxSendWR: s.depth, MaxInline: maxInline}, s.depth*maxDatagram, 2*s.depth, verbs.LocalWrite)
	if err != nil {
		return err
	}
	s.firstPSN, s.qpn = psnNearWrap(s.draw.Rand), end.qp.QPN()
	if err := setUp(end.qp, s.qkey, s.firstPSN); err != nil {
		return err
	}
	source := r.gidTo(ctx)
	s.gid = ctx.Device().GIDs[source]
	r.bySrc[s.qpn] = s
	ah, err := end.pd.CreateAH(verbs.AHAttr{DestGID: verbs.GIDOf(r.env.addrOf(server)), SourceGID: source})
	if err != nil {
		return err
	}
	for !r.ready {
		end.rt.Sleep(time.Microsecond)
	}
	o := &outbox{ends: end, draw: s.draw, ops: s.ops, depth: s.depth}
	err = o.send(func(k int) verbs.SendWR {
		g, qkey := s.next(k)
		at := k % s.depth * maxDatagram
		s.msgs.Fill(end.buf[at:at+g.size], uint64(k))
		return verbs.SendWR{
			Op: g.op, Imm: g.imm, SGL: []verbs.SGE{end.mr.SGE(at, g.size)},
			AH: ah, RemoteQPN: r.targets[g.target].qp.QPN(), RemoteQKey: qkey,
		}
	})
	if err != nil {
		return err
	}
	if err := ah.Destroy(); err != nil {
		return err
	}
	return end.close()
}

// next draws datagram k of a sender and the Q_Key with which it is posted.
func (s *udSender) next(k int) (g datagram, qkey uint32) {
	d := s.draw
	g = datagram{k: k, target: d.IntN(len(s.run.targets)), op: one(d, verbs.OpSend, verbs.OpSendImm), size: d.size(s.run.mtu, maxDatagram)}
	if g.op == verbs.OpSendImm {
		g.imm = d.Uint32()
	}
	right := s.run.targets[g.target].qkey
	qkey, g.opens = right, true
	switch d.IntN(8) {
	case 0:
		qkey = right ^ 1<<d.IntN(31)
		g.opens = false
	case 1:
		qkey = d.Uint32() | privileged
		g.opens = s.qkey == right
	}
	if g.size <= s.run.mtu {
		s.sent = append(s.sent, g)
	}
	return g, qkey
}

// see is called for each packet that reaches the server. It finds the datagram in the packet and
// predicts that it is delivered if its Q_Key is correct and a receive is posted (IBTA 9.8.3.1).
// Duplicates and datagrams out of order are delivered, too.
func (r *udRun) see(f *wire.Frame) {
	t, s := r.byQPN[f.BTH.DestQP], r.bySrc[f.DETH.SrcQP]
	if t == nil || f.BTH.Opcode.Service() != wire.ServiceUD {
		return
	}
	if s == nil {
		r.env.fail("a datagram came from QP %#x, which no host has", f.DETH.SrcQP)
		return
	}
	n := int(uint32(f.BTH.PSN-s.firstPSN) & 0xffffff)
	if n >= len(s.sent) || r.targets[s.sent[n].target] != t {
		r.env.fail("datagram %d of QP %#x came to QP %#x; it was not sent there", n, s.qpn, f.BTH.DestQP)
		return
	}
	if g := &s.sent[n]; g.opens && t.take() {
		t.use()
		t.foretold = append(t.foretold, udArrival{s, n})
	}
}

// udSlot is the length of the memory of one receive: a GRH and the longest datagram.
const udSlot = verbs.GRHLen + maxDatagram

// serve is the server's side: it makes the targets, posts receives and receives datagrams.
func (r *udRun) serve(ctx verbs.Context) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	slots := r.recvs * len(r.targets)
	in, err := newInbox(ctx, pd, slots, udSlot, slots, r.shared)
	if err != nil {
		return err
	}
	all := new(stock)
	for i, t := range r.targets {
		if t.from = all; !r.shared {
			t.from = new(stock)
		}
		if t.qp, err = pd.CreateQP(verbs.QPInit{Type: verbs.UD, SendCQ: in.cq, RecvCQ: in.cq, SRQ: in.srq, MaxSendWR: 1, MaxRecvWR: r.recvs}); err != nil {
			return err
		}
		if err := setUp(t.qp, t.qkey, 0); err != nil {
			return err
		}
		r.byQPN[t.qp.QPN()] = t
		for k := range r.recvs {
			if err := in.post(t.qp, &t.grip, i*r.recvs+k); err != nil {
				return err
			}
		}
	}
	r.ready = true
	return r.receive(ctx.Runtime(), in)
}

// receive handles the completions of received datagrams until the run ends.
func (r *udRun) receive(rt verbs.Runtime, in *inbox) error {
	d := newDraw(r.env.draw.Uint64())
	for wc, err := range received(in.cq) {
		if err != nil {
			return err
		}
		t := r.byQPN[wc.QPN]
		if t == nil {
			return errForeign
		}
		if err := t.check(wc, in.bytes(wc.ID)); err != nil {
			return err
		}
		if r.late {
			rt.Sleep(d.span(0, 20*time.Microsecond))
		}
		if err := in.post(t.qp, &t.grip, int(wc.ID)); err != nil {
			return err
		}
	}
	return nil
}

// check compares a received datagram with the next one that was predicted for the target.
func (t *udTarget) check(wc *verbs.WC, buf []byte) error {
	if wc.Status != verbs.Success {
		return fmt.Errorf("receive: %v", wc.Status)
	}
	if t.received == len(t.foretold) {
		return fmt.Errorf("QP %#x delivered a datagram of %d bytes that may not be delivered or did not come", t.qp.QPN(), wc.ByteLen)
	}
	a := t.foretold[t.received]
	t.received++
	g := &a.from.sent[a.k]
	flags := verbs.WithGRH
	if !t.v6 {
		flags |= verbs.OverIPv4
	}
	if g.op == verbs.OpSendImm {
		flags |= verbs.WithImm
	}
	if wc.Opcode != verbs.WCRecv || wc.Flags != flags || wc.ByteLen != uint32(verbs.GRHLen+g.size) || wc.Imm != g.imm || wc.SrcQPN != a.from.qpn {
		return fmt.Errorf("datagram %d of QP %#x: opcode %v flags %v imm %#x from QP %#x, %d bytes; want flags %v imm %#x, %d bytes",
			g.k, a.from.qpn, wc.Opcode, wc.Flags, wc.Imm, wc.SrcQPN, wc.ByteLen, flags, g.imm, verbs.GRHLen+g.size)
	}
	grh, err := verbs.ParseGRH(buf)
	if err != nil || grh.Source != a.from.gid {
		return fmt.Errorf("datagram %d of QP %#x: its sender is said to be %v, want %v: %w", g.k, a.from.qpn, grh.Source, a.from.gid, err)
	}
	if off := a.from.msgs.Check(buf[verbs.GRHLen:verbs.GRHLen+g.size], uint64(g.k)); off >= 0 {
		return &perf.DataError{Op: "datagram", Msg: uint64(g.k), Offset: off, Got: uint64(buf[verbs.GRHLen+off])}
	}
	return nil
}

// judge checks after the run that every predicted datagram was received.
func (r *udRun) judge() error {
	delivered, sent := 0, 0
	for _, t := range r.targets {
		delivered += t.received
		if t.received != len(t.foretold) {
			return fmt.Errorf("QP %#x: %d datagrams had to be delivered, %d were", t.qp.QPN(), len(t.foretold), t.received)
		}
	}
	for _, s := range r.senders {
		sent += len(s.sent)
	}
	r.env.note("%d datagrams sent, %d delivered", sent, delivered)
	return r.env.checkConservation()
}
