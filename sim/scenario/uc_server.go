package scenario

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// noLetter is the value of ucOracle.cur when no message is in progress.
const noLetter = -1

// ucOracle predicts which messages the responder of an unreliable connection delivers: those of
// which all packets arrived in sequence, without other packets of the connection in between, and
// for which a receive was posted (IBTA 9.8.2.2.1).
type ucOracle struct {
	grip
	cur, next int   // number of the message in progress, and of its next packet
	dropped   bool  // no receive was posted when the message in progress began, so it is not delivered
	foretold  []int // numbers of the messages that consume a receive and must be delivered, in order
	// written has the packets of WRITEs that must be in memory. unsure has the last packets of
	// WRITEs with immediate data for which no receive was posted: they may be in memory or not.
	written, unsure map[int]bool // by number of the packet on the connection
}

// see records that packet i of message l, which has number k, has arrived.
func (o *ucOracle) see(l *letter, k, i int) {
	if i != 0 && (o.cur != k || o.next != i) {
		o.cur = noLetter
		return
	}
	if i == 0 {
		o.cur, o.dropped = k, false
		if l.op == verbs.OpSend || l.op == verbs.OpSendImm {
			o.dropped = !o.take()
		}
	}
	o.next = i + 1
	if o.dropped {
		return
	}
	last := i == l.n-1
	if last && l.op == verbs.OpWriteImm && !o.take() {
		o.unsure[l.first+i] = true
		o.cur = noLetter
		return
	}
	o.written[l.first+i] = true
	if !last {
		return
	}
	o.cur = noLetter
	if l.takesReceive() {
		o.use()
		o.foretold = append(o.foretold, k)
	}
}

// see is called for each packet that reaches the server. It finds the message to which the packet
// belongs, and passes both to the connection's oracle.
func (r *ucRun) see(f *wire.Frame) {
	p := r.byQPN[f.BTH.DestQP]
	if p == nil || f.BTH.Opcode.Service() != wire.ServiceUC {
		return
	}
	n := int(uint32(f.BTH.PSN-p.firstPSN) & 0xffffff)
	k, _ := slices.BinarySearchFunc(p.letters, n, func(l letter, n int) int {
		if n >= l.first+l.n {
			return -1
		}
		return 1
	})
	if k >= len(p.letters) {
		r.env.fail("a packet with PSN %#x came: packet %d of a connection that has sent %d", f.BTH.PSN, n, p.packets)
		return
	}
	p.oracle.see(&p.letters[k], k, n-p.letters[k].first)
}

type ucServer struct {
	*ucRun
	*inbox
	rt   verbs.Runtime
	qps  []verbs.QP
	draw *draw
}

func (r *ucRun) serve(ctx verbs.Context, l rdmacm.Listener) error {
	n := len(r.pairs)
	s := &ucServer{ucRun: r, rt: ctx.Runtime(), qps: make([]verbs.QP, n), draw: newDraw(r.env.draw.Uint64())}
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	if s.inbox, err = newInbox(ctx, pd, r.recvs*n, max(r.maxLen, 1), (r.recvs+1)*n, r.shared); err != nil {
		return err
	}
	stocks := make([]*stock, n)
	for i := range stocks {
		if stocks[i] = stocks[0]; i == 0 || !r.shared {
			stocks[i] = new(stock)
		}
	}
	for range n {
		if err := s.accept(ctx, pd, l, stocks); err != nil {
			return err
		}
	}
	return s.receive()
}

// accept accepts one connection and posts its receives.
func (s *ucServer) accept(ctx verbs.Context, pd verbs.PD, l rdmacm.Listener, stocks []*stock) error {
	req, err := l.Accept(clock.Never)
	if err != nil {
		return err
	}
	i := int(req.Private()[0])
	p := s.pairs[i]
	mem, err := pd.RegMR(p.region, len(p.region), verbs.LocalWrite|verbs.RemoteWrite)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPInit{Type: verbs.UC, SendCQ: s.cq, RecvCQ: s.cq, SRQ: s.srq, MaxSendWR: 1, MaxRecvWR: s.recvs})
	if err != nil {
		return err
	}
	p.oracle = ucOracle{grip: grip{from: stocks[i]}, cur: noLetter, written: make(map[int]bool), unsure: make(map[int]bool)}
	s.qps[i], s.byQPN[qp.QPN()] = qp, p
	if err := req.Accept(qp, rdmacm.Params{PathMTU: verbs.MTU(s.mtu)}, remoteOf(mem).appendTo(nil), ctx.Runtime().Now().Add(dialPatience)); err != nil {
		return err
	}
	for k := range s.recvs {
		if err := s.post(qp, &p.oracle.grip, i*s.recvs+k); err != nil {
			return err
		}
	}
	return nil
}

// receive handles the completions of received messages until the run ends.
func (s *ucServer) receive() error {
	for wc, err := range received(s.cq) {
		if err != nil {
			return err
		}
		p := s.byQPN[wc.QPN]
		if p == nil {
			return errForeign
		}
		if err := p.take(wc, s.bytes(wc.ID)); err != nil {
			return fmt.Errorf("connection %d: %w", p.index, err)
		}
		if s.late {
			s.rt.Sleep(s.draw.span(0, 20*time.Microsecond))
		}
		if err := s.post(s.qps[p.index], &p.oracle.grip, int(wc.ID)); err != nil {
			return err
		}
	}
	return nil
}

// take compares a received message with the next one that the oracle has predicted.
func (p *ucPair) take(wc *verbs.WC, buf []byte) error {
	if p.received == len(p.oracle.foretold) {
		return fmt.Errorf("a message of %d bytes was delivered, but none has arrived completely since message %d", wc.ByteLen, p.received)
	}
	k := p.oracle.foretold[p.received]
	p.received++
	l := &p.letters[k]
	return arrived(wc, buf, p.msgs, k, l.op, l.size, l.imm)
}

// judge checks after the run that every predicted message was received, and that the memory has the
// predicted bytes of all WRITEs.
func (r *ucRun) judge() error {
	delivered, sent := 0, 0
	for _, p := range r.pairs {
		delivered += len(p.oracle.foretold)
		if p.received != len(p.oracle.foretold) {
			return fmt.Errorf("connection %d: %d messages arrived completely, %d were delivered", p.index, len(p.oracle.foretold), p.received)
		}
		for k := range p.letters {
			if p.letters[k].takesReceive() {
				sent++
			}
			if err := p.checkWrite(k); err != nil {
				return fmt.Errorf("connection %d: %w", p.index, err)
			}
		}
	}
	r.env.note("%d of %d messages with a receive were delivered", delivered, sent)
	return r.env.checkConservation()
}

// checkWrite checks the memory of message k if it is a WRITE, packet by packet. A packet's bytes
// are in memory if the packet and all packets of the message before it arrived in sequence;
// otherwise the memory is unchanged.
func (p *ucPair) checkWrite(k int) error {
	l := &p.letters[k]
	if l.op != verbs.OpWrite && l.op != verbs.OpWriteImm {
		return nil
	}
	want := make([]byte, l.size)
	p.msgs.Fill(want, uint64(k))
	for i := range l.n {
		if p.oracle.unsure[l.first+i] && !p.oracle.written[l.first+i] {
			continue
		}
		from, to := i*p.run.mtu, min((i+1)*p.run.mtu, l.size)
		expect := want[from:to]
		if !p.oracle.written[l.first+i] {
			expect = make([]byte, to-from)
		}
		if got := p.region[l.off+from : l.off+to]; !slices.Equal(got, expect) {
			return fmt.Errorf("WRITE %d, packet %d of %d: memory differs from what the packets that arrived leave there (written: %v)", k, i, l.n, p.oracle.written[l.first+i])
		}
	}
	return nil
}
