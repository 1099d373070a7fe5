package transport

import (
	"errors"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Every answer in every state that sends, with every fault that an answer can have, for every
// operation.

// answerTo is the answer that completes an operation, and the length of its message. There are
// READs with three, two and one response packets.
var answersTo = []struct {
	answer wire.Opcode
	op     verbs.WROpcode
	length int
	skip   int // response packets that come first
}{
	{wire.RCReadResponseFirst, verbs.OpRead, 2*everyMTU + everyTail, 0},
	{wire.RCReadResponseMiddle, verbs.OpRead, 2*everyMTU + everyTail, 1},
	{wire.RCReadResponseLast, verbs.OpRead, everyMTU + everyTail, 1},
	{wire.RCReadResponseOnly, verbs.OpRead, everyTail, 0},
	{wire.RCAtomicAck, verbs.OpFetchAdd, 8, 0},
	{wire.RCAtomicAck, verbs.OpCmpSwap, 8, 0},
	{wire.RCAtomicAck, verbs.OpMaskedCmpSwap, 8, 0},
	{wire.RCAtomicAck, verbs.OpMaskedFetchAdd, 8, 0},
	{wire.RCReadResponseOnly, verbs.OpAtomicWrite, 0, 0},
	{wire.RCReadResponseOnly, verbs.OpFlush, 0, 0},
	{wire.RCAck, verbs.OpSend, everyTail, 0},
	{wire.RCAck, verbs.OpSendImm, everyTail, 0},
	{wire.RCAck, verbs.OpSendInv, everyTail, 0},
	{wire.RCAck, verbs.OpWrite, everyTail, 0},
	{wire.RCAck, verbs.OpWriteImm, everyTail, 0},
}

// prober is a requester with one work request outstanding, and the region that it names.
type prober struct {
	s      *side
	region verbs.SGE
	revoke func()
}

// newProber posts a work request and brings the queue pair to the state.
func newProber(t *testing.T, state verbs.QPState, op verbs.WROpcode, length int) *prober {
	t.Helper()
	x := &prober{s: newSide(t, "a", 1, 1<<12, Config{QPN: 0x11})}
	q := x.s.qp
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(q.ToInit(verbs.ToInit{}))
	must(q.ToRTR(0, verbs.ToRTR{PathMTU: everyMTU, DestQPN: 0x12}))
	must(q.ToRTS(0, verbs.ToRTS{SendPSN: everyPSN, Timeout: 14, RetryCount: 1, RNRRetry: 1}))
	r, err := x.s.env.Mem.Reg(x.s.pd, make([]byte, 4096), allAccess)
	must(err)
	x.region = verbs.SGE{Addr: r.Base(), Length: uint32(length), LKey: r.LKey()}
	x.revoke = func() { must(x.s.env.Mem.Dereg(r)) }
	x.post(t, op, 1)
	if state == verbs.StateSQD {
		must(q.ToSQD(0, &x.s.out))
	}
	return x
}

func (x *prober) post(t *testing.T, op verbs.WROpcode, id uint64) {
	t.Helper()
	wr := verbs.SendWR{ID: id, Op: op, Flags: verbs.Signalled, SGL: []verbs.SGE{x.region}, RemoteAddr: 4096, RKey: 9, Flush: verbs.Flush{Global: true}}
	if isBare(op) {
		wr.SGL = nil
	}
	post(t, x.s, wr)
}

// take handles an answer and returns the status of the first completed work request, and how many
// were completed.
func (x *prober) take(op wire.Opcode, psn wire.PSN, length int, s wire.Syndrome) (verbs.Status, int) {
	p := wire.Packet{BTH: wire.BTH{Opcode: op, PSN: psn, PKey: 0xffff, DestQP: x.s.qp.Num()}, AETH: wire.AETH{Syndrome: s}}
	if op.Is(wire.OpPayload) {
		p.Payload = make([]byte, length)
	}
	x.s.qp.Handle(0, &p, &x.s.out)
	return x.ended()
}

func (x *prober) ended() (verbs.Status, int) {
	x.s.file()
	var wc [4]verbs.WC
	n := x.s.scq.Poll(wc[:])
	return wc[0].Status, n
}

// isBare reports whether an operation is answered without data, and so takes no SGL.
func isBare(op verbs.WROpcode) bool { return op == verbs.OpAtomicWrite || op == verbs.OpFlush }

// payloadOf returns the payload length of a READ response to an operation.
func payloadOf(op wire.Opcode, to verbs.WROpcode) int {
	if isBare(to) {
		return 0
	}
	if op.Is(wire.OpFirst | wire.OpMiddle) {
		return everyMTU
	}
	return everyTail
}

// An answer of the expected kind, PSN, length and AETH is accepted. Any other answer is dropped as
// a ghost, or ends the connection (IBTA 9.7.6.1/ghost, 9.7.6.1/response, 9.7.5.1/positive).
func TestEveryAnswerEverywhere(t *testing.T) {
	for _, state := range []verbs.QPState{verbs.StateRTS, verbs.StateSQD} {
		for _, c := range answersTo {
			ask := func() (*prober, wire.PSN) {
				x := newProber(t, state, c.op, c.length)
				for i := range c.skip {
					op := wire.RCReadResponseMiddle
					if i == 0 {
						op = wire.RCReadResponseFirst
					}
					x.take(op, everyPSN.Add(i), everyMTU, wire.AckNoCredits)
				}
				return x, everyPSN.Add(c.skip)
			}
			expect := func(what string, got verbs.Status, n int, want verbs.Status, wantN int) {
				if n != wantN || n > 0 && got != want {
					t.Errorf("%v in %v to %v: %s: %d completions, first %v; want %d of %v", c.answer, state, c.op, what, n, got, wantN, want)
				}
			}
			done := 1
			if c.answer.Is(wire.OpRead) && c.answer.Is(wire.OpFirst|wire.OpMiddle) {
				done = 0
			}
			x, psn := ask()
			st, n := x.take(c.answer, psn, payloadOf(c.answer, c.op), wire.AckNoCredits)
			expect("right", st, n, verbs.Success, done)

			x, psn = ask()
			st, n = x.take(c.answer, psn.Add(-1), payloadOf(c.answer, c.op), wire.AckNoCredits)
			expect("stale", st, n, 0, 0)
			st, n = x.take(c.answer, psn.Add(1000), payloadOf(c.answer, c.op), wire.AckNoCredits)
			expect("of what was never sent", st, n, 0, 0)

			if c.answer != wire.RCAck {
				x, psn = ask()
				st, n = x.take(c.answer, psn, payloadOf(c.answer, c.op), wire.NakRemoteAccess)
				if c.answer != wire.RCReadResponseMiddle { // a middle packet has no AETH
					expect("refusing", st, n, verbs.BadRespErr, 1)
				}
				x, psn = ask()
				x.revoke()
				st, n = x.take(c.answer, psn, payloadOf(c.answer, c.op), wire.AckNoCredits)
				if !isBare(c.op) { // which has none
					expect("with its memory gone", st, n, verbs.LocProtErr, 1)
				}
			}
			if c.answer.Is(wire.OpRead) {
				x, psn = ask()
				st, n = x.take(c.answer, psn, payloadOf(c.answer, c.op)+1, wire.AckNoCredits)
				expect("too long", st, n, verbs.BadRespErr, 1)
			}
			wrong := wire.RCAtomicAck
			if c.answer == wrong {
				wrong = wire.RCReadResponseOnly
			}
			x, psn = ask()
			st, n = x.take(wrong, psn, everyTail, wire.AckNoCredits)
			expect("of another kind", st, n, verbs.BadRespErr, 1)
		}
	}
}

// The syndrome of an acknowledgement decides the status of the oldest work request, for every
// operation (IBTA 9.7.5/codes, 9.7.5.2.8/wait, 9.7.6.1.3/timeout).
func TestEveryAcknowledgement(t *testing.T) {
	for _, state := range []verbs.QPState{verbs.StateRTS, verbs.StateSQD} {
		for _, c := range answersTo {
			for s, want := range map[wire.Syndrome]verbs.Status{
				wire.NakInvalid: verbs.RemInvReqErr, wire.NakRemoteAccess: verbs.RemAccessErr, wire.NakRemoteOp: verbs.RemOpErr,
				wire.NakInvalidRD: verbs.BadRespErr, 0x7f: verbs.BadRespErr, 0x40: verbs.BadRespErr,
			} {
				x := newProber(t, state, c.op, c.length)
				if st, n := x.take(wire.RCAck, everyPSN, 0, s); n != 1 || st != want || x.s.qp.State() != verbs.StateError {
					t.Errorf("%v in %v: %v: %d completions, first %v, want %v; now %v", c.op, state, s, n, st, want, x.s.qp.State())
				}
			}
			for s, want := range map[wire.Syndrome]verbs.Status{wire.NakPSNSequence: verbs.RetryExcErr, wire.RNRNak | 1: verbs.RNRRetryExcErr} {
				x := newProber(t, state, c.op, c.length)
				st, n := x.take(wire.RCAck, everyPSN, 0, s)
				if n != 0 {
					t.Errorf("%v in %v: first %v: %v", c.op, state, s, st)
				}
				if s.IsRNR() {
					// While the requester waits after an RNR NAK, a sequence NAK for a later packet
					// has no effect.
					if st, n := x.take(wire.RCAck, everyPSN, 0, wire.NakPSNSequence); n != 0 {
						t.Errorf("%v in %v: while waiting: %v", c.op, state, st)
					}
					x.s.qp.Tick(x.s.qp.Deadline(), &x.s.out)
				}
				if st, n = x.take(wire.RCAck, everyPSN, 0, s); n != 1 || st != want {
					t.Errorf("%v in %v: second %v: %d completions, first %v, want %v", c.op, state, s, n, st, want)
				}
			}
			x := newProber(t, state, c.op, c.length)
			for x.s.qp.Deadline() != clock.Never {
				x.s.qp.Tick(x.s.qp.Deadline(), &x.s.out)
			}
			if st, n := x.ended(); n != 1 || st != verbs.RetryExcErr {
				t.Errorf("%v in %v: silence: %d completions, first %v", c.op, state, n, st)
			}
		}
	}
}

// An acknowledgement of a request behind a READ or atomic implies that the answer of the READ or
// atomic was lost (IBTA 9.7.6.1/implied-nak).
func TestEveryImpliedNak(t *testing.T) {
	for _, state := range []verbs.QPState{verbs.StateRTS, verbs.StateSQD} {
		for _, op := range []verbs.WROpcode{verbs.OpRead, verbs.OpFetchAdd, verbs.OpCmpSwap, verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush} {
			x := newProber(t, verbs.StateRTS, op, 8)
			x.post(t, verbs.OpWrite, 2)
			if state == verbs.StateSQD {
				if err := x.s.qp.ToSQD(0, &x.s.out); err != nil {
					t.Fatal(err)
				}
			}
			x.s.out.Reset()
			if st, n := x.take(wire.RCAck, everyPSN.Next(), 0, wire.AckNoCredits); n != 0 || len(x.s.out.Tx) != 2 {
				t.Errorf("%v in %v: %d completions, first %v, %d packets sent again", op, state, n, st, len(x.s.out.Tx))
			}
		}
	}
}

var everyOp = []verbs.WROpcode{
	verbs.OpSend, verbs.OpSendImm, verbs.OpSendInv, verbs.OpWrite, verbs.OpWriteImm, verbs.OpRead, verbs.OpCmpSwap, verbs.OpFetchAdd,
	verbs.OpLocalInv, verbs.OpBindMW, verbs.OpRegMR, verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite,
	verbs.OpFlush,
}

// workOf returns a valid work request for s.
func workOf(t testing.TB, s *side, op verbs.WROpcode) verbs.SendWR {
	t.Helper()
	wr := verbs.SendWR{ID: 1, Op: op, Flags: verbs.Signalled, SGL: []verbs.SGE{s.sge(0, 8)}, AH: testAH(1), RemoteAddr: 4096, RKey: 9, Flush: verbs.Flush{Global: true}}
	if isBare(op) {
		wr.SGL = nil
	}
	if op == verbs.OpLocalInv {
		wr.SGL, wr.InvRKey = nil, s.fastReg(t, 8, allAccess).RKey()
	}
	if op == verbs.OpRegMR {
		r, err := s.env.Mem.AllocFast(s.pd, make([]byte, 64))
		if err != nil {
			t.Fatal(err)
		}
		wr.SGL[0] = verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}
		wr.RKey, wr.BindAccess = r.RKey(), allAccess
	}
	if op == verbs.OpBindMW {
		w, err := s.env.Mem.AllocWindow(s.pd)
		if err != nil {
			t.Fatal(err)
		}
		wr.RKey, wr.BindAccess = verbs.NextRKey(w.RKey()), verbs.RemoteRead
		r, err := s.env.Mem.Reg(s.pd, make([]byte, 64), allAccess|verbs.MWBind)
		if err != nil {
			t.Fatal(err)
		}
		wr.SGL[0] = verbs.SGE{Addr: r.Base(), Length: 8, LKey: r.LKey()}
	}
	return wr
}

// The state decides whether a post is accepted, refused or flushed, for every operation (IBTA
// 10.3.1/post); a post is accepted only if the service has the operation (IBTA 10.8.2/operations).
func TestEveryPostEverywhere(t *testing.T) {
	for _, kind := range []verbs.QPType{verbs.RC, verbs.UC, verbs.UD} {
		for state := verbs.StateReset; state <= verbs.StateError; state++ {
			if state == verbs.StateSQE && kind == verbs.RC {
				continue
			}
			for _, op := range everyOp {
				s := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11, Type: kind, MaxSendWR: 2})
				bringTo(t, s, state)
				s.file()
				s.out.Reset()
				var wc [4]verbs.WC
				s.scq.Poll(wc[:])
				postEverywhere(t, s, kind, state, op)
			}
		}
	}
}

func postEverywhere(t *testing.T, s *side, kind verbs.QPType, state verbs.QPState, op verbs.WROpcode) {
	t.Helper()
	wr := workOf(t, s, op)
	err := s.qp.PostSend(0, &wr, &s.out)
	s.file()
	var wc [4]verbs.WC
	n := s.scq.Poll(wc[:])
	before := state < verbs.StateRTS
	flushes := state == verbs.StateError || state == verbs.StateSQE
	fits := s.qp.core.svc.ops&opSet(op) != 0
	switch {
	case before:
		if !errors.Is(err, verbs.ErrState) {
			t.Errorf("%v in %v: %v: %v", kind, state, op, err)
		}
		return
	case !fits:
		if !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%v in %v: %v, which is no operation of it: %v", kind, state, op, err)
		}
		return
	case err != nil:
		t.Errorf("%v in %v: %v: %v", kind, state, op, err)
	case flushes && (n != 1 || wc[0].Status != verbs.WRFlushErr):
		t.Errorf("%v in %v: %v: %d completions, first %v", kind, state, op, n, wc[0].Status)
	case state == verbs.StateSQD && (n != 0 || len(s.out.Tx) != 0):
		t.Errorf("%v in %v: %v: %d completions, %d packets", kind, state, op, n, len(s.out.Tx))
	case n > 0 && !flushes && wc[0].Status != verbs.Success:
		t.Errorf("%v in %v: %v: %v", kind, state, op, wc[0].Status)
	}
	long := wr
	long.SGL = make([]verbs.SGE, 5)
	if err := s.qp.PostSend(0, &long, &s.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("%v in %v: %v with too many SGEs: %v", kind, state, op, err)
	}
	if flushes || state != verbs.StateSQD && (kind != verbs.RC || sendOps[op].local) {
		return // nothing stays in the queue
	}
	for range 2 {
		wr = workOf(t, s, op)
		err = s.qp.PostSend(0, &wr, &s.out)
	}
	if !errors.Is(err, verbs.ErrNoSpace) {
		t.Errorf("%v in %v: %v into a full queue: %v", kind, state, op, err)
	}
}

// States that do not receive drop every request; a queue pair in RTR drops answers, because it has
// sent no request (IBTA 10.3.1/rc).
func TestEveryPacketWhereNoneIsWanted(t *testing.T) {
	for kind, service := range map[verbs.QPType]wire.Opcode{verbs.RC: wire.ServiceRC, verbs.UC: wire.ServiceUC, verbs.UD: wire.ServiceUD} {
		for _, state := range []verbs.QPState{verbs.StateReset, verbs.StateInit, verbs.StateRTR, verbs.StateError} {
			for i := range 1 << 8 {
				op := wire.Opcode(i)
				if op.Service() != service || state == verbs.StateRTR && !op.Is(wire.OpResponse) || !op.Known() && kind != verbs.RC {
					continue
				}
				s := newSide(t, "b", 2, 1<<12, Config{QPN: 0x12, Type: kind})
				bringTo(t, s, state)
				recv := s.rcq.Len()
				p := wire.Packet{BTH: wire.BTH{Opcode: op, AckReq: true, PKey: 0xffff}}
				s.qp.Handle(0, &p, &s.out)
				s.file()
				if len(s.out.Tx) != 0 || s.qp.State() != state || s.rcq.Len() != recv || len(s.out.Async) != 0 {
					t.Errorf("%v in %v: %v has an effect: %+v", kind, state, op, s.out)
				}
			}
		}
	}
}

// With initiator depth 0 a READ or atomic is refused (IBTA 9.7.3/depth).
func TestEveryOperationWithoutDepth(t *testing.T) {
	for _, op := range []verbs.WROpcode{verbs.OpRead, verbs.OpCmpSwap, verbs.OpFetchAdd, verbs.OpMaskedCmpSwap, verbs.OpMaskedFetchAdd, verbs.OpAtomicWrite, verbs.OpFlush} {
		a := newSide(t, "a", 1, 1<<12, Config{QPN: 0x11})
		b := newSide(t, "b", 2, 1<<12, Config{QPN: 0x12})
		l := defaultLink
		l.rts.MaxRdAtomic = -1
		connect(t, a, b, l)
		post(t, a, workOf(t, a, op))
		a.file()
		if wc := onlyWC(t, a.scq); wc.Status != verbs.LocQPOpErr || len(a.out.Tx) > 0 {
			t.Errorf("%v: %v, %d packets", op, wc.Status, len(a.out.Tx))
		}
	}
}

// A NAK acknowledges every packet before its PSN (IBTA 9.7.5/nak-acknowledges).
func TestNakAcknowledgesWhatIsBefore(t *testing.T) {
	a, b := newPair(t)
	for id := range uint64(3) {
		wr := writeTo(b)
		wr.ID = id
		post(t, a, wr)
	}
	p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCAck, PSN: defaultLink.psnA.Add(2)}, AETH: wire.AETH{Syndrome: wire.NakRemoteAccess}}
	a.qp.Handle(0, &p, &a.out)
	a.file()
	var wc [4]verbs.WC
	if n := a.scq.Poll(wc[:]); n != 3 || wc[0].Status != verbs.Success || wc[1].Status != verbs.Success || wc[2].Status != verbs.RemAccessErr {
		t.Errorf("%d completions %v", n, wc)
	}
}
