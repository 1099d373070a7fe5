package verbsengine

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"net/netip"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// fakeShell is the smallest shell: one NIC that is connected to itself, one thread, and a time that
// advances only in waits.
type fakeShell struct {
	t       *testing.T
	e       *engine.Engine
	now     clock.Time
	out     packetio.Batch
	inside  bool
	entered int
}

var _ Shell = (*fakeShell)(nil)

func newFake(t *testing.T) *fakeShell {
	t.Helper()
	e, err := engine.New(engine.Config{
		MAC: wire.MAC{2}, GIDs: []verbs.GID{verbs.GIDOf(netip.MustParseAddr("10.0.0.1"))}, Rand: rand.New(rand.NewPCG(1, 2)),
		Resolve: func(netip.Addr) (wire.MAC, bool) { return wire.MAC{4}, true },
	})
	if err != nil {
		t.Fatal(err)
	}
	return &fakeShell{t: t, e: e}
}

func (b *fakeShell) Now() clock.Time          { return b.now }
func (b *fakeShell) Sleep(d time.Duration)    { b.now = b.now.Add(d) }
func (b *fakeShell) Go(_ string, f func())    { f() }
func (b *fakeShell) Wait()                    {}
func (b *fakeShell) NewGate() verbs.Gate      { panic("one thread") }
func (b *fakeShell) Rand() *rand.Rand         { return rand.New(rand.NewPCG(3, 4)) }
func (b *fakeShell) Progress()                { b.e.Tick(b.now, &b.out) }
func (b *fakeShell) isReady(c Condition) bool { return c.Ready(b.e) }

func (b *fakeShell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	if b.inside {
		b.t.Error("Enter inside of Enter")
	}
	b.inside = true
	b.entered++
	return b.now, b.e, &b.out
}

func (b *fakeShell) Leave() {
	if !b.inside {
		b.t.Error("Leave without Enter")
	}
	b.inside = false
	b.out.Reset() // no other NIC is on the link
}

func (b *fakeShell) Await(c Condition, deadline clock.Time) error {
	if b.inside {
		b.t.Error("Await inside of Enter")
	}
	for range 1000 {
		switch {
		case b.isReady(c):
			return nil
		case b.now >= deadline:
			return verbs.ErrTimeout
		}
		b.now = max(b.now, clock.Min(deadline, b.e.Deadline()))
		b.e.Tick(b.now, &b.out)
	}
	return verbs.ErrTimeout
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func wantErr(t *testing.T, what string, err, sentinel error) {
	t.Helper()
	var op *verbs.OpError
	if !errors.Is(err, sentinel) || !errors.As(err, &op) || op.Op == "" {
		t.Errorf("%s: %v, want an OpError with %q", what, err, sentinel)
	}
}

type objects struct {
	pd verbs.PD
	cq verbs.CQ
	mr verbs.MR
	qp verbs.QP
}

func newObjects(t *testing.T, ctx verbs.Context) (o objects) {
	t.Helper()
	var err error
	o.pd, err = ctx.AllocPD()
	must(t, err)
	o.cq, err = ctx.CreateCQ(64)
	must(t, err)
	o.mr, err = o.pd.RegMR(nil, 4096, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	must(t, err)
	o.qp, err = o.pd.CreateQP(verbs.QPInit{SendCQ: o.cq, RecvCQ: o.cq})
	must(t, err)
	return o
}

// ready connects the queue pair to itself.
func (o objects) ready(t *testing.T, ctx verbs.Context) {
	t.Helper()
	o.connect(t, ctx, o.qp)
}

func (o objects) connect(t *testing.T, ctx verbs.Context, peer verbs.QP) {
	t.Helper()
	must(t, o.qp.ToInit(verbs.ToInit{Access: verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic}))
	must(t, o.qp.ToRTR(verbs.ToRTR{DestQPN: peer.QPN(), DestGID: ctx.Device().GIDs[0], PathMTU: verbs.MTU1024}))
	must(t, o.qp.ToRTS(verbs.ToRTS{Timeout: 14, RetryCount: 1}))
}

func TestLifeOfAnApplication(t *testing.T) {
	b := newFake(t)
	ctx := New(b)
	o := newObjects(t, ctx)
	o.ready(t, ctx)
	must(t, o.mr.WriteAt([]byte("12345678"), 0))
	must(t, o.mr.Store64(16, 7))
	before := b.entered
	must(t, o.qp.PostSend(
		verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{o.mr.SGE(0, 8)}, RemoteAddr: o.mr.Addr() + 8, RKey: o.mr.RKey()},
		verbs.SendWR{ID: 2, Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{o.mr.SGE(24, 8)}, RemoteAddr: o.mr.Addr() + 16, RKey: o.mr.RKey(), CompareAdd: 3}))
	if b.entered != before+1 {
		t.Errorf("a list of work requests entered the shell %d times", b.entered-before)
	}
	must(t, o.cq.Wait(b.now.Add(time.Second)))
	var wc [4]verbs.WC
	if n, err := o.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].ID != 2 || wc[0].Status != verbs.Success {
		t.Errorf("Poll: %d, %v, %+v", n, err, wc[0])
	}
	var got [8]byte
	must(t, o.mr.ReadAt(got[:], 8))
	sum, err := o.mr.Load64(16)
	if string(got[:]) != "12345678" || sum != 10 || err != nil {
		t.Errorf("memory %q and %d, %v", got, sum, err)
	}
	must(t, o.qp.ToSQD())
	if ev, err := ctx.NextAsyncEvent(b.now.Add(time.Second)); err != nil || ev.Kind != verbs.EventSQDrained && ev.Kind != verbs.EventCommEst {
		t.Errorf("event %+v, %v", ev, err)
	}
	must(t, o.qp.ResumeRTS())
	must(t, o.qp.PostRecv(verbs.RecvWR{ID: 3}))
	must(t, o.qp.ToError())
	if n, err := o.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != verbs.WRFlushErr || wc[0].ID != 3 {
		t.Errorf("flush: %d, %v, %+v", n, err, wc[0])
	}
	must(t, o.qp.ToReset())
	must(t, o.qp.Destroy())
	must(t, o.mr.Dereg())
	must(t, o.cq.Destroy())
	must(t, o.pd.Dealloc())
	must(t, ctx.Close())
}

func TestMistakes(t *testing.T) {
	b := newFake(t)
	ctx, other := New(b), New(newFake(t))
	o, foreign := newObjects(t, ctx), newObjects(t, other)
	create := func(init verbs.QPInit) error { _, err := o.pd.CreateQP(init); return err }
	wantErr(t, "no CQ", create(verbs.QPInit{}), verbs.ErrInvalid)
	wantErr(t, "foreign CQ", create(verbs.QPInit{SendCQ: o.cq, RecvCQ: foreign.cq}), verbs.ErrInvalid)
	wantErr(t, "nil CQ", create(verbs.QPInit{SendCQ: (*cq)(nil), RecvCQ: o.cq}), verbs.ErrInvalid)
	wantErr(t, "no such type", create(verbs.QPInit{Type: verbs.XRCTarget + 1, SendCQ: o.cq, RecvCQ: o.cq}), verbs.ErrNotSupported)
	reg := func(buf []byte, n int, a verbs.Access) error { _, err := o.pd.RegMR(buf, n, a); return err }
	wantErr(t, "no memory", reg(nil, 0, 0), verbs.ErrInvalid)
	wantErr(t, "empty buffer", reg([]byte{}, 0, 0), verbs.ErrInvalid)
	wantErr(t, "negative length", reg(nil, -1, 0), verbs.ErrInvalid)
	wantErr(t, "two lengths", reg(make([]byte, 8), 9, 0), verbs.ErrInvalid)
	wantErr(t, "remote write alone", reg(nil, 8, verbs.RemoteWrite), verbs.ErrInvalid)
	wantErr(t, "depth 0", func() error { _, err := ctx.CreateCQ(0); return err }(), verbs.ErrInvalid)
	wantErr(t, "PD in use", o.pd.Dealloc(), verbs.ErrBusy)
	wantErr(t, "CQ in use", o.cq.Destroy(), verbs.ErrBusy)
	wantErr(t, "post in RESET", o.qp.PostSend(verbs.SendWR{}), verbs.ErrState)
	wantErr(t, "receive in RESET", o.qp.PostRecv(verbs.RecvWR{}), verbs.ErrState)
	if err := o.qp.ToRTS(verbs.ToRTS{}); !errors.Is(err, verbs.ErrState) {
		t.Errorf("RESET to RTS: %v", err)
	}
	wantErr(t, "beyond the region", o.mr.ReadAt(make([]byte, 8), 4090), verbs.ErrInvalid)
	wantErr(t, "before the region", o.mr.WriteAt(make([]byte, 8), -8), verbs.ErrInvalid)
	wantErr(t, "unaligned", o.mr.Store64(1, 0), verbs.ErrInvalid)
	wantErr(t, "no event", o.cq.WaitEvent(b.now.Add(time.Second)), verbs.ErrTimeout)
	o.ready(t, ctx)
	var op *verbs.OpError
	err := o.qp.PostSend(
		verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline, Data: []byte("x")},
		verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Inline, Data: make([]byte, 5000)})
	if !errors.As(err, &op) || op.Index != 1 {
		t.Errorf("too much inline data: %v, index %+v", err, op)
	}
}

// A copy that is longer than a step is executed completely, and the NIC runs in between.
func TestLongCopies(t *testing.T) {
	b := newFake(t)
	o := newObjects(t, New(b))
	const n = 2*maxCopy + 3
	mr, err := o.pd.RegMR(nil, n+5, verbs.LocalWrite)
	must(t, err)
	want, got := make([]byte, n), make([]byte, n)
	for i := range want {
		want[i] = byte(i >> 10)
	}
	before := b.entered
	must(t, mr.WriteAt(want, 5))
	if b.entered-before != 3 {
		t.Errorf("%d steps, want 3", b.entered-before)
	}
	must(t, mr.ReadAt(got, 5))
	if !bytes.Equal(got, want) {
		t.Error("the copy is not the same")
	}
	wantErr(t, "one byte too many", mr.WriteAt(want, 6), verbs.ErrInvalid)
}

// Close destroys the remaining objects in the right order, and every later call returns ErrClosed.
func TestCloseDestroysAll(t *testing.T) {
	b := newFake(t)
	ctx := New(b)
	o := newObjects(t, ctx)
	must(t, ctx.Close())
	must(t, ctx.Close())
	if left := b.e.Tables.Objects(); left != (engine.Objects{}) {
		t.Errorf("left %+v", left)
	}
	var wc [1]verbs.WC
	_, err := o.cq.Poll(wc[:])
	wantErr(t, "Poll", err, verbs.ErrClosed)
	wantErr(t, "Wait", o.cq.Wait(clock.Never), verbs.ErrClosed)
	wantErr(t, "WaitEvent", o.cq.WaitEvent(clock.Never), verbs.ErrClosed)
	wantErr(t, "PostSend", o.qp.PostSend(verbs.SendWR{}), verbs.ErrClosed)
	_, err = ctx.AllocPD()
	wantErr(t, "AllocPD", err, verbs.ErrClosed)
	_, err = ctx.CreateCQ(1)
	wantErr(t, "CreateCQ", err, verbs.ErrClosed)
	_, err = ctx.NextAsyncEvent(clock.Never)
	wantErr(t, "NextAsyncEvent", err, verbs.ErrClosed)
	_, err = o.pd.RegMR(nil, 8, 0)
	wantErr(t, "RegMR", err, verbs.ErrClosed)
}

// If a request lacks a right or names wrong memory, its completion has the error, not the post.
func TestAccessIsChecked(t *testing.T) {
	b := newFake(t)
	ctx := New(b)
	for name, c := range map[string]struct {
		spoil func(o objects, wr *verbs.SendWR)
		want  verbs.Status
	}{
		"wrong rkey":    {func(_ objects, wr *verbs.SendWR) { wr.RKey ^= 0x100 }, verbs.RemAccessErr},
		"out of bounds": {func(_ objects, wr *verbs.SendWR) { wr.RemoteAddr += 4096 }, verbs.RemAccessErr},
		"wrong lkey":    {func(_ objects, wr *verbs.SendWR) { wr.SGL[0].LKey ^= 0x100 }, verbs.LocProtErr},
	} {
		o, peer := newObjects(t, ctx), newObjects(t, ctx)
		o.connect(t, ctx, peer.qp)
		peer.connect(t, ctx, o.qp)
		wr := verbs.SendWR{ID: 1, Op: verbs.OpWrite, SGL: []verbs.SGE{o.mr.SGE(0, 8)}, RemoteAddr: peer.mr.Addr(), RKey: peer.mr.RKey()}
		c.spoil(o, &wr)
		must(t, o.qp.PostSend(wr))
		must(t, o.cq.Wait(b.now.Add(time.Second)))
		var wc [1]verbs.WC
		if n, err := o.cq.Poll(wc[:]); n != 1 || err != nil || wc[0].Status != c.want {
			t.Errorf("%s: %d, %v, %v; want %v", name, n, err, wc[0].Status, c.want)
		}
	}
}

// A length beyond 32 bits must not wrap to a short one that would pass.
func TestSGELengthDoesNotWrap(t *testing.T) {
	m := &mr{}
	for _, n := range []int{1 << 32, 1<<32 + 8, -1} {
		if got := m.SGE(0, n).Length; got != math.MaxUint32 {
			t.Errorf("SGE of %d bytes has length %d", n, got)
		}
	}
}
