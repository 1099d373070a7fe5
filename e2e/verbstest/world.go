package verbstest

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// World has two NICs that are joined by a link, A (index 0) and B (index 1). The test uses both as
// one application.
type World struct {
	// Contexts are fresh, one on each NIC. The tests may close them.
	Contexts [2]verbs.Context
	// Again opens one more context on a NIC; nil if that is not possible.
	Again func(t testing.TB, nic int) verbs.Context
	// Managers are the connection managers of the contexts; nil if there are none. Family is the
	// index, in the GID table of both NICs, of the GIDs that the tests use.
	Managers [2]rdmacm.Manager
	Family   int
	// Faults make the NICs fail; nil if this implementation cannot.
	Faults Faults
}

// PKeys are the P_Key tables of both NICs in a world whose partitions are tested. Both NICs are
// full members of the first partition. In the second one, B is only a limited member. In the third
// one, both are limited members, so they cannot communicate.
var PKeys = [2][]uint16{{0xffff, 0x8001, 2}, {0xffff, 1, 2}}

// Faults are the ways in which tests make a NIC fail.
type Faults interface {
	Down(nic int)
	Up(nic int)
	Link(nic int, up bool)
	FailQP(nic int, n wire.QPN) error
	OverrunCQs(nic int, n wire.QPN) error
}

// Test is one test of the suite.
type Test struct {
	Name string
	Run  func(t *testing.T, w *World)
}

// Run runs every test of the suite in a world of its own.
func Run(t *testing.T, open func(t *testing.T) *World) {
	for _, c := range Tests() {
		t.Run(c.Name, func(t *testing.T) { c.Run(t, open(t)) })
	}
}

// Tests lists the suite.
func Tests() []Test {
	return []Test{
		{"EveryOperationOfRC", testRC},
		{"Flush", testFlush},
		{"SizesAndPieces", testSizes},
		{"Unreliable", testUC},
		{"Datagrams", testUD},
		{"SendRing", testSendRing},
		{"SendRingRecycled", testRecycledLoop},
		{"SendRingUnrolled", testUnrolledLoop},
		{"SendRingLocks", testRingLocks},
		{"Multicast", testMulticast},
		{"ManyGroups", testManyGroups},
		{"Partitions", testPartitions},
		{"SharedReceiveQueue", testSRQ},
		{"MemoryWindow", testMW},
		{"FastRegistration", testFastReg},
		{"ChangedRights", testRereg},
		{"InvalidationRights", testInvalidationRights},
		{"DeviceMemory", testDM},
		{"LocalAccess", testLocalAccess},
		{"RefusedPosts", testRefusedPosts},
		{"RefusedObjects", testRefusedObjects},
		{"OrderOfDestruction", testDestroy},
		{"ForeignObjects", testForeign},
		{"EveryStatus", testStatuses},
		{"FlushedRequests", testFlushed},
		{"Reset", testReset},
		{"SendQueueDrains", testDrain},
		{"Modify", testModify},
		{"Events", testCQEvents},
		{"Deadlines", testDeadlines},
		{"Overrun", testOverrun},
		{"ResizeCQ", testResizeCQ},
		{"ModerateCQ", testModerateCQ},
		{"DestroyEndsWaits", testDestroyEndsWaits},
		{"QueuesAreBounded", testBounds},
		{"LongLists", testLongLists},
		{"ManyThreads", testThreads},
		{"AtomicsSerialise", testAtomics},
		{"CloseDestroysAll", testClose},
		{"NICGoesAndComesBack", testDown},
		{"InjectedFaults", testFaults},
		{"Connect", testConnect},
		{"Attributes", testAttributes},
	}
}

// patience bounds waits for events that must come.
const patience = 30 * time.Second

const full = verbs.LocalWrite | verbs.RemoteRights | verbs.MWBind

// end is one side of the test: a NIC with a context, and one protection domain, completion queue
// and region in it.
type end struct {
	t   testing.TB
	w   *World
	nic int
	ctx verbs.Context
	pd  verbs.PD
	cq  verbs.CQ
	mr  verbs.MR
}

// ends opens both sides.
func (w *World) ends(t testing.TB) (a, b *end) { return w.end(t, 0), w.end(t, 1) }

const memory = 1 << 16

func (w *World) end(t testing.TB, nic int) *end {
	t.Helper()
	e := &end{t: t, w: w, nic: nic, ctx: w.Contexts[nic]}
	e.pd = need(e.ctx.AllocPD())(t)
	e.cq = need(e.ctx.CreateCQ(512))(t)
	e.mr = need(e.pd.RegMR(nil, memory, full))(t)
	return e
}

// qp makes a queue pair; change may change its attributes.
func (e *end) qp(kind verbs.QPType, change func(*verbs.QPInit)) verbs.QP {
	e.t.Helper()
	init := verbs.QPInit{Type: kind, SendCQ: e.cq, RecvCQ: e.cq}
	if change != nil {
		change(&init)
	}
	q := need(e.pd.CreateQP(init))(e.t)
	return q
}

// connect brings queue pair q of e and queue pair peer of the end to, to RTS.
func (e *end) connect(to *end, q, peer verbs.QP) {
	e.t.Helper()
	e.up(0, q, to, peer, func(*verbs.ToRTS) {})
	to.up(0, peer, e, q, func(*verbs.ToRTS) {})
}

// joined makes a queue pair of e and one of the end to, and connects them; change may change the attributes
// of the one of e.
func (e *end) joined(to *end, kind verbs.QPType, change func(*verbs.QPInit)) (q, peer verbs.QP) {
	e.t.Helper()
	q, peer = e.qp(kind, change), to.qp(kind, nil)
	e.connect(to, q, peer)
	return q, peer
}

// up brings queue pair q of e to RTS, connected to queue pair other of peer. pkeyIndex is the index of
// the connection's partition in the P_Key table.
func (e *end) up(pkeyIndex int, q verbs.QP, peer *end, other verbs.QP, change func(*verbs.ToRTS)) {
	e.t.Helper()
	must(e.t, q.ToInit(verbs.ToInit{Access: verbs.RemoteRights, PKeyIndex: pkeyIndex}))
	must(e.t, q.ToRTR(verbs.ToRTR{
		DestQPN: other.QPN(), DestGID: peer.ctx.Device().GIDs[e.w.Family], SourceGID: e.w.Family, RecvPSN: 77,
		PathMTU: verbs.MTU1024, MinRNRTimer: 1,
	}))
	// Eight ACK timeouts of 0.5 s, because a thread may wait long for a processor of a busy machine.
	rts := verbs.ToRTS{SendPSN: 77, Timeout: 17, RetryCount: 7, RNRRetry: 7}
	change(&rts)
	must(e.t, q.ToRTS(rts))
}

// pair opens both ends and connects a queue pair of each, of the given type.
func (w *World) pair(t testing.TB, kind verbs.QPType) (a, b *end, qa, qb verbs.QP) {
	t.Helper()
	a, b = w.ends(t)
	qa, qb = a.joined(b, kind, nil)
	return a, b, qa, qb
}

// in returns the time after d from now.
func (e *end) in(d time.Duration) clock.Time { return e.ctx.Runtime().Now().Add(d) }

// next waits for a completion.
func (e *end) next() verbs.WC {
	e.t.Helper()
	return nextOf(e.t, e, e.cq)
}

func nextOf(t testing.TB, e *end, cq verbs.CQ) verbs.WC {
	t.Helper()
	var wc [1]verbs.WC
	for {
		n := need(cq.Poll(wc[:]))(t)
		if n == 1 {
			return wc[0]
		}
		must(t, cq.Wait(e.in(patience)))
	}
}

// want waits for a completion with an ID and a status.
func (e *end) want(id uint64, s verbs.Status) verbs.WC {
	e.t.Helper()
	wc := e.next()
	if wc.ID != id || wc.Status != s {
		e.t.Fatalf("completion %d with %q, want %d with %q", wc.ID, wc.Status, id, s)
	}
	return wc
}

// post posts a work request and waits for its completion, with status s.
func (e *end) post(q verbs.QP, wr verbs.SendWR, s verbs.Status) verbs.WC {
	e.t.Helper()
	must(e.t, q.PostSend(wr))
	return e.want(wr.ID, s)
}

// none checks that nothing completes for 20 ms.
func (e *end) none() {
	e.t.Helper()
	if err := e.cq.Wait(e.in(20 * time.Millisecond)); !errors.Is(err, verbs.ErrTimeout) {
		var wc [1]verbs.WC
		_, _ = e.cq.Poll(wc[:])
		e.t.Fatalf("a completion that should not be: %+v, %v", wc[0], err)
	}
}

// event waits for an asynchronous event of a kind, and ignores other events.
func (e *end) event(kind verbs.AsyncKind) verbs.AsyncEvent {
	e.t.Helper()
	for {
		ev, err := e.ctx.NextAsyncEvent(e.in(patience))
		if err != nil {
			e.t.Fatalf("no event %q: %v", kind, err)
		}
		if ev.Kind == kind {
			return ev
		}
	}
}

func (e *end) state(q verbs.QP) verbs.QPState {
	e.t.Helper()
	a := need(q.Query())(e.t)
	return a.State
}

// becomes waits until a queue pair is in a state.
func (e *end) becomes(q verbs.QP, s verbs.QPState) {
	e.t.Helper()
	for end := e.in(patience); e.state(q) != s; e.ctx.Runtime().Sleep(time.Millisecond) {
		if e.ctx.Runtime().Now() > end {
			e.t.Fatalf("the queue pair is in %v, want %v", e.state(q), s)
		}
	}
}

// remote returns a signalled work request with n bytes of e's region, from offset off, for the bytes
// of region mr from offset at.
func (e *end) remote(id uint64, op verbs.WROpcode, off, n int, mr verbs.MR, at uint64) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: op, Flags: verbs.Signalled, SGL: []verbs.SGE{e.mr.SGE(off, n)}, RemoteAddr: mr.Addr() + at, RKey: mr.RKey()}
}

// write returns a signalled WRITE of n bytes from the beginning of one region to that of the other.
func (e *end) write(id uint64, to *end, n int) verbs.SendWR {
	return e.remote(id, verbs.OpWrite, 0, n, to.mr, 0)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// need returns the result of a call that must succeed: need(call())(t).
func need[T any](v T, err error) func(t testing.TB) T {
	return func(t testing.TB) T {
		t.Helper()
		must(t, err)
		return v
	}
}

// holds checks that a region, or device memory, has the bytes want from offset off on.
func holds(t testing.TB, what string, memory interface{ ReadAt(b []byte, off int) error }, off int, want string) {
	t.Helper()
	got := make([]byte, len(want))
	must(t, memory.ReadAt(got, off))
	for i := range got {
		if got[i] != want[i] {
			t.Errorf("%s: from byte %d of %d on the memory has %.100q, want %.100q", what, i, len(got), got[i:], want[i:])
			break
		}
	}
}

// expect reports an error of the test unless ok is true.
func expect(t testing.TB, ok bool, format string, args ...any) {
	t.Helper()
	if !ok {
		t.Errorf(format, args...)
	}
}

func wantErr(t testing.TB, what string, err, sentinel error) {
	t.Helper()
	if !errors.Is(err, sentinel) {
		t.Errorf("%s: %v, want %q", what, err, sentinel)
	}
}

// wantErrs is wantErr for errors that must be the same.
func wantErrs(t testing.TB, sentinel error, errs map[string]error) {
	t.Helper()
	for what, err := range errs {
		wantErr(t, what, err, sentinel)
	}
}

// loads checks the word at an offset of a region.
func loads(t testing.TB, what string, mr verbs.MR, off int, want uint64) {
	t.Helper()
	if v, err := mr.Load64(off); v != want || err != nil {
		t.Errorf("%s: the word is %#x, %v; want %#x", what, v, err, want)
	}
}

// wantIndex is wantErr for a post of a list of work requests: the error must also name the request
// at index.
func wantIndex(t testing.TB, what string, err, sentinel error, index int) {
	t.Helper()
	wantErr(t, what, err, sentinel)
	var op *verbs.OpError
	if errors.As(err, &op) && op.Index != index {
		t.Errorf("%s: index %d, want %d", what, op.Index, index)
	}
}

// second is for calls whose first result does not matter.
func second[T any](_ T, err error) error { return err }
