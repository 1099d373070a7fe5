package uverbs_test

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A modify command sets the attributes that its mask names, and no others, whatever their fields
// have.
func TestModifyTakesWhatItsMaskNames(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	modify, query := modifier(h, t)
	full := func(m *uverbs.ModifyQPArgs) {
		m.QPNumbers = uverbs.QPNumbers{QKey: 1, RecvPSN: 2, SendPSN: 3, DestQPN: 4, Access: 5, PKeyIndex: 1}
		m.QPState = uverbs.QPState{
			PathMTU: 3, MaxRdAtomic: 6, MaxDestRdAtomic: 7, MinRNRTimer: 8, Port: 1, Timeout: 9, RetryCount: 5, RNRRetry: 6,
		}
		m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[1]), 1, 1
	}
	want := uverbs.QPAttr{}
	const toRTR = uverbs.MaskPathMTU | uverbs.MaskDest | uverbs.MaskDestQPN | uverbs.MaskRecvPSN | uverbs.MaskDestAtomic | uverbs.MaskRNRTimer
	const toRTS = uverbs.MaskTimeout | uverbs.MaskRetry | uverbs.MaskSendPSN | uverbs.MaskRNRRetry | uverbs.MaskRdAtomic
	for _, s := range []struct {
		state uint8
		mask  uint32
		set   func()
	}{
		{1, uverbs.MaskPort | uverbs.MaskAccess | uverbs.MaskPKeyIndex, func() { want.Port, want.Access, want.PKeyIndex = 1, 5, 1 }},
		{1, uverbs.MaskAccess, func() {}},
		{
			2, toRTR,
			func() {
				want.PathMTU, want.DestQPN, want.RecvPSN, want.MaxDestRdAtomic, want.MinRNRTimer = 3, 4, 2, 7, 8
				want.Dest = uverbs.QPDest{DestGID: verbs.GIDOf(ips[1]), Global: 1, Port: 1}
			},
		},
		{3, toRTS, func() { want.Timeout, want.RetryCount, want.SendPSN, want.RNRRetry, want.MaxRdAtomic = 9, 5, 3, 6, 6 }},
		{3, uverbs.MaskRNRTimer, func() {}},
	} {
		if errno := modify(e, uverbs.MaskState|s.mask, func(m *uverbs.ModifyQPArgs) { full(m); m.State = s.state }); errno != 0 {
			t.Fatalf("to state %d, mask %#x: %v", s.state, s.mask, errno)
		}
		s.set()
		want.State, want.Current = s.state, s.state
		q := query(e)
		if q.Dest != want.Dest || q.QPNumbers != want.QPNumbers || q.QPState != want.QPState {
			t.Errorf("state %d, mask %#x: %+v %+v %+v, want %+v %+v %+v", s.state, s.mask, q.Dest, q.QPNumbers, q.QPState, want.Dest, want.QPNumbers, want.QPState)
		}
	}
}

// A queue pair that asks for no READs cannot post one; one that asks for a single one can.
func TestQueuePairWithoutReads(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	modify, _ := modifier(h, t)
	for _, reads := range []uint8{0, 1} {
		a, b := h.attach(t, 0).queuePair(uverbs.TypeRC), h.attach(t, 1).queuePair(uverbs.TypeRC)
		b.connect(a, 0)
		for _, state := range []uint8{1, 2, 3} {
			errno := modify(a, needs(a.typ, state-1, state), func(m *uverbs.ModifyQPArgs) {
				m.State, m.Port, m.Access, m.PathMTU, m.DestQPN, m.MaxDestRdAtomic, m.MaxRdAtomic = state, 1, allow&^1, 3, b.qp.QPN, reads, reads
				m.Dest.DestGID, m.Dest.Global, m.Dest.Port = verbs.GIDOf(ips[1]), 1, 1
				m.Timeout, m.RetryCount, m.RNRRetry = a.timeout, 7, 7
			})
			if errno != 0 {
				t.Fatal(errno)
			}
		}
		a.post(opRead, 0, 8, addr(b.buf), b.mr.RKey)
		if c := a.next(); (c.Status == 0) != (reads > 0) {
			t.Errorf("%d READs: %v", reads, verbs.Status(c.Status))
		}
	}
}

// The memory that a queue pair counts grows with its inline data and its pieces.
func TestEntriesCountBySize(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	const sends = 100
	queued := func(sges, inline uint32) int64 {
		before := h.used()
		do[uverbs.Handle](e.client, uverbs.CreateQP, uverbs.QPArgs{
			PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: sends, MaxRecv: 1, MaxSGE: sges, MaxRecvSGE: 1, MaxInline: inline, Type: uverbs.TypeRC,
		})
		return h.more(before)["queueMemory"]
	}
	small, inline, pieces := queued(1, 16), queued(1, 256), queued(16, 16)
	if inline < small+sends*(256-16) {
		t.Errorf("sends with 240 bytes of inline data more use %d bytes, and %d without", inline, small)
	}
	if pieces < small+sends*15*16 {
		t.Errorf("sends with 15 pieces more use %d bytes, and %d without", pieces, small)
	}
	if _, errno := e.raw(uverbs.CreateQP, uverbs.NoChannel, nil); errno != unix.EINVAL {
		t.Errorf("a command without arguments: %v", errno)
	}
}

// The end of a queue pair counts the events that it had just before, and the program reads them.
func TestEventJustBeforeTheEnd(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a, _ := h.linked(t, uverbs.TypeRC)
	fd := a.asyncEvents()
	must(t, h.devices[0].FailQP(wire.QPN(a.qp.QPN)))
	if r := do[uverbs.Reported](a.client, uverbs.DestroyQP, uverbs.Handle{H: a.qp.H}, uint32(0)); r.Events != 1 {
		t.Errorf("%+v", r)
	}
	wantEvent(t, fd, 9, eventQPFatal)
}
