package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Every request in every state, with every fault that a request can have. The expected outcome of
// each fault is stated here again, independently of the responder's tables.

const everyPSN wire.PSN = 0x100

const (
	everyMTU  = 256
	everyTail = 10 // payload bytes of a LAST or ONLY
)

// trial is one request to a fresh responder.
type trial struct {
	of     verbs.QPType
	state  verbs.QPState
	op     wire.Opcode
	access verbs.Access
	depth  int // number of READs and atomics that may be outstanding
	// recvs are the lengths of the elements of the only receive; badFrom is the first element with
	// a bad key.
	recvs   []int
	badFrom int
	// inside: the message of a MIDDLE or LAST has begun. other: a message of another kind has.
	inside, other bool
	// ruin changes the packet; revoke deregisters the region before the packet arrives.
	ruin   func(p *wire.Packet)
	revoke bool

	s *side
}

// requestFault is a fault of a request and its expected outcome.
type requestFault struct {
	name string
	// has reports whether a request can have the fault.
	has  func(info *wire.OpInfo) bool
	make func(x *trial)
	// answer is the syndrome that a reliable connection must send; noAnswer: none; anyAnswer: the
	// normal one of the operation.
	answer wire.Syndrome
	// recv is the expected status of the receive, if the message takes one; Success: the receive is
	// still posted.
	recv verbs.Status
	// fatal: the reliable connection ends. fatalUC: an unreliable one ends.
	fatal, fatalUC bool
}

const (
	noAnswer  wire.Syndrome = 0xff
	anyAnswer wire.Syndrome = 0xfe
)

func of(flags wire.OpFlags) func(*wire.OpInfo) bool {
	return func(i *wire.OpInfo) bool { return i.Flags&flags != 0 }
}

func all(*wire.OpInfo) bool { return true }

// takesReceive reports whether a request takes a receive when it is the first of its message.
func takesReceive(i *wire.OpInfo) bool {
	return i.Flags&wire.OpSend != 0 && i.Flags&(wire.OpFirst|wire.OpOnly) != 0 || i.Flags&wire.OpWrite != 0 && i.Flags&wire.OpImm != 0
}

func named(i *wire.OpInfo) bool { return i.Headers&(wire.HasRETH|wire.HasAtomicETH) != 0 }

var requestFaults = []requestFault{
	{name: "none", has: all, make: func(*trial) {}, answer: anyAnswer},
	{name: "ahead", has: all, make: func(x *trial) { x.ruin = func(p *wire.Packet) { p.BTH.PSN = p.BTH.PSN.Add(2) } }, answer: wire.NakPSNSequence},
	{name: "behind", has: all, make: func(x *trial) { x.ruin = func(p *wire.Packet) { p.BTH.PSN = p.BTH.PSN.Add(-1) } }, answer: anyAnswer},
	{name: "message not begun", has: of(wire.OpMiddle | wire.OpLast), make: func(x *trial) { x.inside = false }, answer: wire.NakInvalid, fatal: true},
	{
		name: "inside a message of another kind", has: of(wire.OpRequest), make: func(x *trial) { x.inside, x.other = false, true },
		answer: wire.NakInvalid, recv: verbs.RemInvReqErr, fatal: true,
	},
	{name: "not enabled", has: named, make: func(x *trial) { x.access = 0 }, answer: wire.NakInvalid, fatal: true},
	{name: "no responder resources", has: of(wire.OpAnswered), make: func(x *trial) { x.depth = -1 }, answer: wire.NakInvalid, fatal: true},
	{name: "no receive", has: takesReceive, make: func(x *trial) { x.recvs = nil }, answer: wire.RNRNak | 12},
	{
		name: "length", has: of(wire.OpPayload | wire.OpRead | wire.OpFlush), make: func(x *trial) { x.ruin = wrongLength },
		answer: wire.NakInvalid, recv: verbs.RemInvReqErr, fatal: true,
	},
	{
		name: "longer than the receive", has: of(wire.OpSend), make: func(x *trial) { x.recvs = []int{x.before() + everyTail/2} },
		answer: wire.NakInvalid, recv: verbs.LocLenErr, fatal: true,
	},
	{
		name: "key", has: named, make: func(x *trial) {
			x.ruin = func(p *wire.Packet) { p.RETH.RKey ^= 0xff; p.AtomicETH.RKey ^= 0xff }
		}, answer: wire.NakRemoteAccess, recv: verbs.LocAccessErr, fatal: true,
	},
	{
		name: "region gone", has: func(i *wire.OpInfo) bool { return i.Flags&(wire.OpWrite|wire.OpAnswered) != 0 },
		make: func(x *trial) { x.revoke = true }, answer: wire.NakRemoteAccess, recv: verbs.LocAccessErr, fatal: true,
	},
	{
		name: "misaligned", has: of(wire.OpAtomic), make: func(x *trial) { x.ruin = func(p *wire.Packet) { p.AtomicETH.VA += 4; p.RETH.VA += 4 } },
		answer: wire.NakInvalid, fatal: true,
	},
	{name: "no placement", has: of(wire.OpFlush), make: func(x *trial) { x.ruin = func(p *wire.Packet) { p.FETH.Placement = 0 } }, answer: wire.NakInvalid, fatal: true},
	{name: "reserved placement", has: of(wire.OpFlush), make: func(x *trial) { x.ruin = func(p *wire.Packet) { p.FETH.Placement |= 4 } }, answer: wire.NakInvalid, fatal: true},
	{name: "reserved level", has: of(wire.OpFlush), make: func(x *trial) { x.ruin = func(p *wire.Packet) { p.FETH.Level = 2 } }, answer: wire.NakInvalid, fatal: true},
	{
		name: "key to invalidate", has: of(wire.OpInv), make: func(x *trial) { x.ruin = func(p *wire.Packet) { p.IETH = 1 } },
		answer: wire.NakRemoteAccess, recv: verbs.LocAccessErr, fatal: true,
	},
	{
		name: "key of the receive", has: of(wire.OpSend), make: func(x *trial) {
			x.recvs, x.badFrom = []int{1000}, 0
			if x.before() > 0 {
				x.recvs, x.badFrom = []int{x.before(), 1000}, 1
			}
		}, answer: wire.NakRemoteOp, recv: verbs.LocProtErr, fatal: true, fatalUC: true,
	},
}

// before returns how many bytes of the message came before this packet.
func (x *trial) before() int {
	if x.op.Is(wire.OpMiddle | wire.OpLast) {
		return everyMTU
	}
	return 0
}

// wrongLength returns a payload length that the packet's place in the message does not allow.
func wrongLength(p *wire.Packet) {
	switch op := p.BTH.Opcode; {
	case op.Is(wire.OpRead | wire.OpFlush):
		p.RETH.Length = MaxMessage + 1
	case op.Is(wire.OpFirst | wire.OpMiddle):
		p.Payload = p.Payload[:everyMTU-1]
	case op.Is(wire.OpLast):
		p.Payload = nil
	default:
		p.Payload = make([]byte, everyMTU+1)
		p.RETH.Length = everyMTU + 1
	}
}

// newTrial returns a request without fault.
func newTrial(of verbs.QPType, state verbs.QPState, op wire.Opcode) *trial {
	return &trial{
		of: of, state: state, op: op, access: allRemote, depth: 4, recvs: []int{1000}, badFrom: -1,
		inside: op.Is(wire.OpMiddle | wire.OpLast), ruin: func(*wire.Packet) {},
	}
}

// open makes the responder.
func (x *trial) open(t *testing.T) {
	t.Helper()
	x.s = newSide(t, "b", 2, 1<<13, Config{QPN: 0x12, Type: x.of})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(x.s.qp.ToInit(verbs.ToInit{Access: x.access, QKey: testQKey}))
	if x.recvs != nil {
		var sgl []verbs.SGE
		for i, n := range x.recvs {
			e := x.s.sge(i*2048, n)
			if x.badFrom >= 0 && i >= x.badFrom {
				e.LKey ^= 0xff
			}
			sgl = append(sgl, e)
		}
		must(x.s.qp.PostRecv(&verbs.RecvWR{ID: 1, SGL: sgl}))
	}
	must(x.s.qp.ToRTR(0, verbs.ToRTR{PathMTU: everyMTU, RecvPSN: everyPSN, DestQPN: 0x11, MaxDestRdAtomic: x.depth, MinRNRTimer: 12}))
	switch x.state {
	case verbs.StateRTS, verbs.StateSQD, verbs.StateSQE:
		must(x.s.qp.ToRTS(0, verbs.ToRTS{Timeout: 14}))
	}
	switch x.state {
	case verbs.StateSQD:
		must(x.s.qp.ToSQD(0, &x.s.out))
	case verbs.StateSQE:
		must(failASend(x.s))
	}
	x.s.file()
	x.s.out.Reset()
	var wc [4]verbs.WC
	x.s.scq.Poll(wc[:])
}

// packet returns the request with the PSN that the responder expects.
func (x *trial) packet(op wire.Opcode) wire.Packet {
	p := wire.Packet{BTH: wire.BTH{Opcode: op, PSN: x.s.qp.rsp.ePSN, AckReq: true, PKey: 0xffff, DestQP: x.s.qp.Num()}}
	p.RETH = wire.RETH{VA: x.s.mem.Base() + 4096, RKey: x.s.mem.RKey(), Length: everyTail}
	p.AtomicETH = wire.AtomicETH{VA: p.RETH.VA, RKey: p.RETH.RKey, SwapOrAdd: 1}
	p.FETH.Placement = wire.FlushGlobal | wire.FlushPersistent
	p.DETH = wire.DETH{QKey: testQKey, SrcQP: 0x11}
	if op.Is(wire.OpPayload) {
		p.Payload = make([]byte, everyTail)
	}
	if op == wire.RCAtomicWrite {
		p.Payload, p.RETH.Length = make([]byte, 8), 8
	}
	if op.Is(wire.OpFirst | wire.OpMiddle) {
		p.Payload = make([]byte, everyMTU)
	}
	if op.Is(wire.OpFirst) {
		p.RETH.Length = everyMTU + everyTail
		if x.op.Is(wire.OpMiddle) {
			p.RETH.Length += everyMTU
		}
	}
	return p
}

// run handles the packets that come first, and then the request.
func (x *trial) run(t *testing.T) {
	t.Helper()
	x.open(t)
	service := x.op.Service()
	first := wire.RCSendFirst | service
	if x.op.Is(wire.OpWrite) != x.other { // a SEND for a request that is not a WRITE; with other, the reverse
		first = wire.RCWriteFirst | service
	}
	if x.of == verbs.UC { // the first packet of an unreliable connection may have any PSN, so a gap needs a packet before it
		p := x.packet(wire.UCWriteOnly)
		p.Payload, p.RETH.Length = nil, 0
		x.s.qp.Handle(0, &p, &x.s.out)
	}
	if x.inside || x.other {
		p := x.packet(first)
		p.BTH.AckReq = false
		x.s.qp.Handle(0, &p, &x.s.out)
	}
	key := x.s.fastReg(t, 8, allAccess)
	p := x.packet(x.op)
	p.IETH = key.RKey()
	x.ruin(&p)
	if x.revoke {
		if err := x.s.env.Mem.Dereg(x.s.mem); err != nil {
			t.Fatal(err)
		}
	}
	if x.of == verbs.UD {
		x.s.qp.HandleDatagram(0, &p, nil, &x.s.out)
	} else {
		x.s.qp.Handle(0, &p, &x.s.out)
	}
	for x.s.qp.Deadline() <= clock.Time(0) {
		x.s.qp.Tick(0, &x.s.out)
	}
}

// receive returns the status of the receive; ok is false while it has not completed.
func (x *trial) receive() (status verbs.Status, ok bool) {
	x.s.file()
	var wc [2]verbs.WC
	n := x.s.rcq.Poll(wc[:])
	return wc[0].Status, n > 0
}

// answered checks the acknowledgement that a reliable connection sends.
func (x *trial) answered(f *requestFault) string {
	tx := x.s.out.Tx
	switch {
	case f.answer == anyAnswer:
		if f.name == "none" && len(tx) != 1 {
			return "not answered"
		}
		for i := range tx {
			if p := &tx[i].Packet; p.BTH.Opcode.Has(wire.HasAETH) && !p.AETH.Syndrome.IsAck() {
				return "answered with " + p.AETH.Syndrome.String()
			}
		}
	case f.answer == noAnswer && len(tx) > 0:
		return "answered with " + tx[0].Packet.BTH.Opcode.String()
	case f.answer != noAnswer && (len(tx) != 1 || tx[0].Packet.BTH.Opcode != wire.RCAck):
		return "not answered with one acknowledgement"
	case f.answer != noAnswer && tx[0].Packet.AETH.Syndrome != f.answer:
		return "answered with " + tx[0].Packet.AETH.Syndrome.String()
	}
	return ""
}

// judge describes the difference between the outcome and the expected one; "": none.
func (x *trial) judge(f *requestFault) string {
	fatal := f.fatal
	if x.of != verbs.RC {
		fatal = f.fatalUC
		if len(x.s.out.Tx) > 0 {
			return "an unreliable service answers"
		}
	} else if wrong := x.answered(f); wrong != "" {
		return wrong
	}
	want := x.state
	if fatal {
		want = verbs.StateError
	}
	if got := x.s.qp.State(); got != want {
		return "the state is " + got.String()
	}
	return x.judgeReceive(f, fatal)
}

// judgeReceive checks the receive of a request that takes one.
func (x *trial) judgeReceive(f *requestFault, fatal bool) string {
	status, ok := x.receive()
	switch {
	case x.recvs == nil:
		return ""
	case fatal && !ok:
		return "the receive is still there"
	case fatal && f.recv != verbs.Success && status != f.recv && status != verbs.WRFlushErr:
		return "the receive ends with " + status.String()
	case fatal && x.op.Is(wire.OpSend) && f.recv != verbs.Success && !x.other && status != f.recv:
		return "the receive ends with " + status.String() // it was in use
	case !fatal && ok && (f.name != "none" || status != verbs.Success) && x.of == verbs.RC:
		return "the receive ends with " + status.String()
	}
	return ""
}

var receivingStates = map[verbs.QPType][]verbs.QPState{
	verbs.RC: {verbs.StateRTR, verbs.StateRTS, verbs.StateSQD},
	verbs.UC: {verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE},
	verbs.UD: {verbs.StateRTR, verbs.StateRTS, verbs.StateSQD, verbs.StateSQE},
}

// requestsOf returns all request opcodes of a transport service.
func requestsOf(service wire.Opcode) (ops []wire.Opcode) {
	for i := range 1 << 8 {
		if op := wire.Opcode(i); op.Service() == service && op.Is(wire.OpRequest) {
			ops = append(ops, op)
		}
	}
	return ops
}

// Each check of the responder refuses the fault for which it exists, in each state, with its own
// NAK and its own status of the receive. An unreliable connection drops the same packet without an
// answer, unless the receive has the fault. IBTA 9.7.4.1/sequence, 9.7.4.1/enabled,
// 9.7.4.1/resources, 9.7.4.1/length, 9.7.4.1/key, 9.7.4.1/duplicate, 9.4.5/alignment,
// 9.7.5/one-nak, 9.9.3/fatal, 9.9.3/silent, 9.9.3/local.
func TestEveryRequestEverywhere(t *testing.T) {
	for kind, service := range map[verbs.QPType]wire.Opcode{verbs.RC: wire.ServiceRC, verbs.UC: wire.ServiceUC} {
		for _, state := range receivingStates[kind] {
			for _, op := range requestsOf(service) {
				for i := range requestFaults {
					f := &requestFaults[i]
					if !f.has(op.Info()) {
						continue
					}
					x := newTrial(kind, state, op)
					f.make(x)
					x.run(t)
					if wrong := x.judge(f); wrong != "" {
						t.Errorf("%v in %v: %v with fault %q: %s", kind, state, op, f.name, wrong)
					}
				}
			}
		}
	}
}

// A reserved opcode on a reliable connection draws a NAK only if its PSN is the expected one (IBTA
// 9.7.4.1/reserved).
func TestEveryReservedOpcode(t *testing.T) {
	for _, state := range receivingStates[verbs.RC] {
		for i := range 1 << 8 {
			op := wire.Opcode(i)
			if op.Known() || op.Service() != wire.ServiceRC {
				continue
			}
			for name, c := range map[string]struct {
				off   int
				fault requestFault
			}{
				"ahead":  {2, requestFault{answer: wire.NakPSNSequence}},
				"behind": {-1, requestFault{answer: noAnswer}},
				"due":    {0, requestFault{answer: wire.NakInvalid, recv: verbs.WRFlushErr, fatal: true}},
			} {
				x := newTrial(verbs.RC, state, op)
				x.ruin = func(p *wire.Packet) { p.BTH.PSN = p.BTH.PSN.Add(c.off) }
				x.run(t)
				if wrong := x.judge(&c.fault); wrong != "" {
					t.Errorf("%v: %v %s: %s", state, op, name, wrong)
				}
			}
		}
	}
}

// Datagrams are executed or dropped without an answer; only a receive with bad memory of its own
// ends the queue pair (IBTA 9.8.3.1, 9.9.3/silent, 9.9.3/local).
func TestEveryDatagramEverywhere(t *testing.T) {
	for _, state := range receivingStates[verbs.UD] {
		for _, op := range requestsOf(wire.ServiceUD) {
			for name, c := range map[string]struct {
				make  func(x *trial)
				taken bool
				fatal bool
			}{
				"none":           {func(*trial) {}, true, false},
				"Q_Key":          {func(x *trial) { x.ruin = func(p *wire.Packet) { p.DETH.QKey++ } }, false, false},
				"length":         {func(x *trial) { x.ruin = func(p *wire.Packet) { p.Payload = make([]byte, 1025) } }, false, false},
				"no receive":     {func(x *trial) { x.recvs = nil }, false, false},
				"too long":       {func(x *trial) { x.recvs = []int{verbs.GRHLen + everyTail - 1} }, false, false},
				"key of receive": {func(x *trial) { x.badFrom = 0 }, true, true},
			} {
				x := newTrial(verbs.UD, state, op)
				c.make(x)
				x.run(t)
				want := state
				if c.fatal {
					want = verbs.StateError
				}
				status, ok := x.receive()
				if ok != c.taken || x.s.qp.State() != want || len(x.s.out.Tx) > 0 || ok && (status == verbs.Success) == c.fatal {
					t.Errorf("%v in %v: %s: taken %v with %v, now %v, answers %v", op, state, name, ok, status, x.s.qp.State(), x.s.out.Tx)
				}
			}
		}
	}
}
