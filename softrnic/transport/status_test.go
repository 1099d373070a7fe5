package transport

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// statusCase causes one completion status. The completion is the first one in the queue that it
// returns.
type statusCase struct {
	status verbs.Status
	recv   bool // the completion is that of a receive
	make   func(t *testing.T, a, b *side)
}

// writeTo returns a signalled WRITE of no bytes to the start of b's region.
func writeTo(b *side) verbs.SendWR {
	return verbs.SendWR{ID: 1, Op: verbs.OpWrite, Flags: verbs.Signalled, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey()}
}

func recvOf(t testing.TB, s *side, n int) {
	t.Helper()
	if err := s.qp.PostRecv(&verbs.RecvWR{ID: 1, SGL: []verbs.SGE{s.sge(0, n)}}); err != nil {
		t.Fatal(err)
	}
}

// sendOf posts a SEND of n bytes and delivers packets until none is in flight.
func sendOf(t *testing.T, a, b *side, n int) {
	t.Helper()
	post(t, a, verbs.SendWR{ID: 1, Op: verbs.OpSend, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(0, n)}})
	settle(t, 0, a, b)
}

// expire loses all packets and advances the time from deadline to deadline until none is left.
func expire(t *testing.T, s *side) {
	t.Helper()
	for range 100 {
		s.file()
		s.out.Reset()
		at := s.qp.Deadline()
		if at == clock.Never {
			return
		}
		s.qp.Tick(at, &s.out)
	}
	t.Fatal("retries do not end")
}

var statusCases = map[string]statusCase{
	"Success":   {verbs.Success, false, func(t *testing.T, a, b *side) { recvOf(t, b, 10); sendOf(t, a, b, 10) }},
	"LocLenErr": {verbs.LocLenErr, true, func(t *testing.T, a, b *side) { recvOf(t, b, 10); sendOf(t, a, b, 11) }},
	"LocQPOpErr": {verbs.LocQPOpErr, false, func(t *testing.T, a, b *side) {
		l := defaultLink
		l.rts.MaxRdAtomic = -1
		reconnect(t, a, b, l)
		post(t, a, verbs.SendWR{Op: verbs.OpRead, RemoteAddr: b.mem.Base(), RKey: b.mem.RKey(), SGL: []verbs.SGE{a.sge(0, 10)}})
	}},
	"LocProtErr": {verbs.LocProtErr, false, func(t *testing.T, a, b *side) {
		wr := writeTo(b)
		wr.SGL = []verbs.SGE{a.sge(1<<16-5, 10)}
		post(t, a, wr)
	}},
	"LocProtErr on a receive": {verbs.LocProtErr, true, func(t *testing.T, a, b *side) {
		recvOf(t, b, 10)
		if err := b.env.Mem.Dereg(b.mem); err != nil {
			t.Fatal(err)
		}
		sendOf(t, a, b, 10)
	}},
	"WRFlushErr": {verbs.WRFlushErr, false, func(t *testing.T, a, b *side) {
		post(t, a, writeTo(b))
		if err := a.qp.ToError(0, &a.out); err != nil {
			t.Fatal(err)
		}
	}},
	"WRFlushErr on a receive": {verbs.WRFlushErr, true, func(t *testing.T, a, b *side) {
		recvOf(t, b, 10)
		if err := b.qp.ToError(0, &b.out); err != nil {
			t.Fatal(err)
		}
	}},
	"MWBindErr": {verbs.MWBindErr, false, func(t *testing.T, a, b *side) {
		post(t, a, verbs.SendWR{Op: verbs.OpLocalInv, InvRKey: a.mem.LKey() ^ 1})
	}},
	"BadRespErr": {verbs.BadRespErr, false, func(t *testing.T, a, b *side) {
		post(t, a, writeTo(b))
		p := wire.Packet{BTH: wire.BTH{Opcode: wire.RCAtomicAck, PSN: defaultLink.psnA}}
		a.qp.Handle(0, &p, &a.out)
	}},
	"LocAccessErr": {verbs.LocAccessErr, true, func(t *testing.T, a, b *side) {
		recvOf(t, b, 10)
		wr := writeTo(b)
		wr.Op, wr.RKey, wr.SGL = verbs.OpWriteImm, wr.RKey^1, []verbs.SGE{a.sge(0, 10)}
		post(t, a, wr)
		settle(t, 0, a, b)
	}},
	"RemInvReqErr": {verbs.RemInvReqErr, false, func(t *testing.T, a, b *side) { recvOf(t, b, 10); sendOf(t, a, b, 11) }},
	"RemAccessErr": {verbs.RemAccessErr, false, func(t *testing.T, a, b *side) {
		wr := writeTo(b)
		wr.RKey, wr.SGL = wr.RKey^1, []verbs.SGE{a.sge(0, 10)}
		post(t, a, wr)
		settle(t, 0, a, b)
	}},
	"RemOpErr": {verbs.RemOpErr, false, func(t *testing.T, a, b *side) {
		recvOf(t, b, 10)
		if err := b.env.Mem.Dereg(b.mem); err != nil {
			t.Fatal(err)
		}
		sendOf(t, a, b, 10)
	}},
	"RetryExcErr": {verbs.RetryExcErr, false, func(t *testing.T, a, b *side) { post(t, a, writeTo(b)); expire(t, a) }},
	"RNRRetryExcErr": {verbs.RNRRetryExcErr, false, func(t *testing.T, a, b *side) {
		l := defaultLink
		l.rts.RNRRetry = 0
		reconnect(t, a, b, l)
		sendOf(t, a, b, 10)
	}},
}

func reconnect(t *testing.T, a, b *side, l link) {
	t.Helper()
	for _, s := range []*side{a, b} {
		if err := s.qp.ToReset(); err != nil {
			t.Fatal(err)
		}
	}
	connect(t, a, b, l)
}

// Every status that a reliable connection can produce occurs; doc.go says why the others cannot.
func TestStatuses(t *testing.T) {
	seen := map[verbs.Status]bool{}
	for name, c := range statusCases {
		t.Run(name, func(t *testing.T) {
			a, b := newPair(t)
			c.make(t, a, b)
			a.file()
			b.file()
			q := a.scq
			if c.recv {
				q = b.rcq
			}
			var wc [1]verbs.WC
			if q.Poll(wc[:]) != 1 || wc[0].Status != c.status {
				t.Fatalf("completion %+v, want %v", wc[0], c.status)
			}
			for status, n := range map[verbs.Status]uint64{
				verbs.RemInvReqErr: a.counters.RemoteInvalidErr, verbs.RemAccessErr: a.counters.RemoteAccessErr,
				verbs.RemOpErr: a.counters.RemoteOpErr, verbs.BadRespErr: a.counters.BadResponse,
				verbs.RetryExcErr: a.counters.RetryExceededErr,
			} {
				if (n == 1) != (status == c.status) && !c.recv || n > 1 {
					t.Errorf("%v is counted %d times", status, n)
				}
			}
			seen[c.status] = true
		})
	}
	for _, s := range []verbs.Status{
		verbs.LocEECOpErr, verbs.LocRDDViolErr, verbs.RemInvRDReqErr, verbs.RemAbortErr, verbs.InvEECNErr,
		verbs.InvEECStateErr, verbs.FatalErr, verbs.RespTimeoutErr, verbs.GeneralErr,
	} {
		seen[s] = true // a reliable connection cannot produce it
	}
	for s := verbs.Success; s <= verbs.GeneralErr; s++ {
		if !seen[s] {
			t.Errorf("no case for %v", s)
		}
	}
}
