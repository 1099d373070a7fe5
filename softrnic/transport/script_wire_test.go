package transport

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxSteps bounds the steps that one command may cause.
const maxSteps = 10000

// collect prints the actions of a step of me and puts its packets on the wire.
func (s *script) collect(me, peer *side) {
	for _, e := range me.out.Async {
		s.printf("%s: event: %v", me.name, e.Kind)
	}
	if srq := me.qp.core.cfg.SRQ; srq != nil && srq.LimitReached() {
		s.printf("%s: SRQ limit reached, %d left", me.name, srq.Query().Queued)
	}
	for _, d := range me.out.Done {
		s.printf("%s: %s", me.name, wcText(d, me))
	}
	for i := range me.out.Tx {
		p := me.out.Tx[i].Packet
		p.Payload = append([]byte(nil), p.Payload...)
		s.wire = append(s.wire, flying{to: peer, pkt: p, n: s.tape.add(s.now, me, &p, false)})
		s.printf("%s", s.packet(&s.wire[len(s.wire)-1]))
	}
	me.out.Reset()
}

func wcText(d Completion, me *side) string {
	if d.To.CQ() == me.rcq {
		t := fmt.Sprintf("recv=%d %v", d.WC.ID, d.WC.Status)
		if d.WC.Status == verbs.Success {
			t += fmt.Sprintf(" %v len=%d", d.WC.Opcode, d.WC.ByteLen)
		}
		if d.WC.Flags&verbs.WithImm != 0 {
			t += fmt.Sprintf(" imm=%#x", d.WC.Imm)
		}
		if d.WC.Flags&verbs.WithInv != 0 {
			t += " invalidated"
		}
		if d.WC.Solicited {
			t += " solicited"
		}
		return t
	}
	return fmt.Sprintf("wr=%d %v", d.WC.ID, d.WC.Status)
}

// opName returns the opcode without its service, which is that of the pair.
func opName(op wire.Opcode) string { return op.String()[len("RC_"):] }

// packet prints a packet on the wire; addresses are relative to the region at the responder.
func (s *script) packet(f *flying) string {
	from := s.a
	if f.to == s.a {
		from = s.b
	}
	p := &f.pkt
	op := p.BTH.Opcode
	name := opName(op)
	if op == wire.RCAck {
		name = p.AETH.Syndrome.String()
	}
	t := fmt.Sprintf("%s->%s %s psn=%06x", from.name, f.to.name, name, uint32(p.BTH.PSN))
	base := f.to.mem.Base()
	switch {
	case op.Has(wire.HasFETH) && p.FETH.Level == wire.FlushRegion:
		t += " whole"
	case op.Has(wire.HasRETH):
		t += fmt.Sprintf(" at=%d dma=%d", int64(p.RETH.VA-base), p.RETH.Length)
	}
	if op.Has(wire.HasAtomicETH) {
		t += fmt.Sprintf(" at=%d", int64(p.AtomicETH.VA-base))
	}
	if op.Is(wire.OpPayload) {
		t += fmt.Sprintf(" len=%d", len(p.Payload))
	}
	if op.Has(wire.HasImmDt) {
		t += fmt.Sprintf(" imm=%#x", p.ImmDt)
	}
	if op.Has(wire.HasAtomicAckETH) {
		t += fmt.Sprintf(" original=%d", p.AtomicAck)
	}
	if op.Has(wire.HasAETH) {
		t += fmt.Sprintf(" msn=%d", p.AETH.MSN)
	}
	if p.BTH.AckReq {
		t += " ack-req"
	}
	if p.BTH.Solicited {
		t += " solicited"
	}
	return t
}

// find returns the place of the first packet on the wire that psn=, op= and from= select.
func (s *script) find() int {
	for i := range s.wire {
		f := &s.wire[i]
		if s.d.HasArg("psn") && f.pkt.BTH.PSN != wire.PSN(s.num("psn", 0)) {
			continue
		}
		if op := s.str("op", ""); op != "" && op != opName(f.pkt.BTH.Opcode) {
			continue
		}
		if from := s.str("from", ""); from != "" && (from == "a") == (f.to == s.a) {
			continue
		}
		return i
	}
	return -1
}

// each takes the selected packets off the wire: one, or all of them with the argument all.
func (s *script) each(verb string, f func(flying)) {
	i := s.find()
	if i < 0 {
		s.printf("nothing on the wire is selected")
	}
	for ; i >= 0; i = s.find() {
		x := s.wire[i]
		s.wire = append(s.wire[:i], s.wire[i+1:]...)
		s.printf("%s %s", verb, s.packet(&x))
		f(x)
		if !s.d.HasArg("all") {
			return
		}
	}
}

func (s *script) drop() {
	s.each("dropped", func(x flying) {
		x.to.qp.core.saw(x.pkt.BTH.Opcode, "lost")
		s.tape.comment(x.n, "fault: dropped")
	})
}

func (s *script) hold() {
	s.each("held", func(x flying) {
		s.tape.comment(x.n, "fault: delayed")
		x.to.qp.core.saw(x.pkt.BTH.Opcode, "delayed")
		s.held = append(s.held, x)
	})
}

// release puts the held packets at the end of the wire.
func (s *script) release() {
	s.wire = append(s.wire, s.held...)
	s.held = nil
}

// dup repeats a packet at the end of the wire.
func (s *script) dup() {
	i := s.find()
	if i < 0 {
		s.printf("nothing on the wire is selected")
		return
	}
	s.wire[i].to.qp.core.saw(s.wire[i].pkt.BTH.Opcode, "duplicated")
	s.tape.comment(s.wire[i].n, "fault: sent 2 times")
	s.wire = append(s.wire, s.wire[i])
}

// deliver [n=N]: moves packets, and those that they cause, until the wire is empty or N were moved.
// The time does not advance, but deadlines that are due are handled.
func (s *script) deliver() {
	n := int(s.num("n", maxSteps))
	for step := 0; step < maxSteps; step++ {
		switch {
		case n > 0 && len(s.wire) > 0:
			n--
			x := s.wire[0]
			s.wire = s.wire[1:]
			x.to.qp.Handle(s.now, &x.pkt, &x.to.out)
		case s.a.qp.Deadline() <= s.now && !s.d.HasArg("n"):
			s.a.qp.Tick(s.now, &s.a.out)
		case s.b.qp.Deadline() <= s.now && !s.d.HasArg("n"):
			s.b.qp.Tick(s.now, &s.b.out)
		default:
			return
		}
		s.collect(s.a, s.b)
		s.collect(s.b, s.a)
	}
	s.printf("stopped after %d steps", maxSteps)
}

// tick goes to the next deadline if it is not after until, and prints the time.
func (s *script) tick(until clock.Time) bool {
	at := clock.Min(s.a.qp.Deadline(), s.b.qp.Deadline())
	if at > until {
		return false
	}
	s.now = max(s.now, at)
	s.printf("@%v", s.now)
	for _, x := range []*side{s.a, s.b} {
		if x.qp.Deadline() <= s.now {
			x.qp.Tick(s.now, &x.out)
		}
	}
	s.collect(s.a, s.b)
	s.collect(s.b, s.a)
	return true
}

// advance D: advances the time; the wire delivers no packet meanwhile.
func (s *script) advance() {
	d, err := time.ParseDuration(s.d.CmdArgs[0].Key)
	if err != nil {
		s.d.Fatalf(s.t, "%v", err)
	}
	until := s.now.Add(d)
	for range maxSteps {
		if !s.tick(until) {
			break
		}
	}
	s.now = until
}

// next: advances the time to the next deadline.
func (s *script) next() {
	if !s.tick(clock.Never - 1) {
		s.printf("nothing is due")
	}
}

func (s *script) flushAcks() {
	me, peer := s.sides()
	me.qp.FlushAcks(s.now, &me.out)
	s.collect(me, peer)
}

func (s *script) show() {
	me, _ := s.sides()
	q := me.qp.Query()
	s.printf("%v send-psn=%06x recv-psn=%06x sends=%d recvs=%d next=%v", q.State, uint32(q.SendPSN), uint32(q.RecvPSN), q.SendQueued, q.RecvQueued, me.qp.Deadline())
	if srq := me.qp.core.cfg.SRQ; srq != nil {
		s.printf("shared: %d receives, limit %d", srq.Query().Queued, srq.Query().Limit)
	}
}

// counters SIDE: prints all counters that are not zero.
func (s *script) counters() {
	me, _ := s.sides()
	for _, c := range metrics.Samples(&me.counters) {
		if c.Value != 0 {
			s.printf("%s=%d", c.Name, c.Value)
		}
	}
}

// word SIDE at=N [set=V]: prints or sets a 64-bit word of the side's region.
func (s *script) word() {
	me, _ := s.sides()
	at := int(s.num("at", 0))
	if s.d.HasArg("set") {
		if err := me.mem.Store64(at, s.num("set", 0)); err != nil {
			s.printf("%v", err)
		}
		return
	}
	v, err := me.mem.Load64(at)
	if err != nil {
		s.printf("%v", err)
		return
	}
	s.printf("%d", v)
}

// fill SIDE at=N len=N byte=V.
func (s *script) fill() {
	me, _ := s.sides()
	at := int(s.num("at", 0))
	for i := range int(s.num("len", 0)) {
		me.buf[at+i] = byte(s.num("byte", 0))
	}
}

// bytes SIDE at=N len=N: prints runs of equal bytes.
func (s *script) bytes() {
	me, _ := s.sides()
	at, n := int(s.num("at", 0)), int(s.num("len", 0))
	for i := at; i < at+n; {
		j := i
		for j < at+n && me.buf[j] == me.buf[i] {
			j++
		}
		s.printf("%d x %02x", j-i, me.buf[i])
		i = j
	}
}
