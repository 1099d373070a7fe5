package engine

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// windowed registers memory of s that allows windows, and returns it with a window.
func windowed(t testing.TB, s *side, n int) (verbs.SGE, *MW) {
	t.Helper()
	mr, err := s.e.RegMR(s.pd, make([]byte, n), verbs.LocalWrite|verbs.MWBind)
	if err != nil {
		t.Fatal(err)
	}
	r, err := mr.Region()
	if err != nil {
		t.Fatal(err)
	}
	mw, err := s.e.AllocMW(s.pd)
	if err != nil {
		t.Fatal(err)
	}
	return verbs.SGE{Addr: r.Base(), Length: uint32(n), LKey: r.LKey()}, mw
}

func mwKey(t testing.TB, mw *MW) uint32 {
	t.Helper()
	key, err := mw.RKey()
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// Only the peer of the queue pair that bound a window can use it. The window ends with the queue
// pair.
func TestWindowBelongsToAQueuePair(t *testing.T) {
	p := newPair(t, nil)
	piece, mw := windowed(t, p.b, 100)
	key := verbs.NextRKey(mwKey(t, mw))
	p.post(t, p.b, verbs.SendWR{ID: 1, Op: verbs.OpBindMW, Flags: verbs.Signalled, SGL: []verbs.SGE{piece}, RKey: key, BindAccess: verbs.RemoteWrite})
	p.run(t, p.now+second)
	if wc := p.b.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success || wc[0].Opcode != verbs.WCBindMW || mwKey(t, mw) != key {
		t.Fatalf("bind: %+v", wc)
	}
	write := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), RemoteAddr: piece.Addr + 7, RKey: key}
	p.post(t, p.a, write)
	p.run(t, p.now+second)
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success {
		t.Fatalf("WRITE through the window: %+v", wc)
	}
	stranger, q := sharedPair(t, p, nil, verbs.RC)
	if err := stranger.PostSend(p.now, []verbs.SendWR{write}, &p.a.out); err != nil {
		t.Fatal(err)
	}
	p.run(t, p.now+second)
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.RemAccessErr || q.q.State() != verbs.StateError {
		t.Errorf("through another queue pair: %+v, %v", wc, q.q.State())
	}
	if err := p.b.qp.ToReset(); err != nil {
		t.Fatal(err)
	}
	if mw.w.Bound() {
		t.Error("bound to a queue pair in RESET")
	}
	if err := mw.Dealloc(); err != nil {
		t.Fatal(err)
	}
	if _, err := mw.RKey(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after dealloc: %v", err)
	}
	if err := mw.Dealloc(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("twice: %v", err)
	}
}

// A region cannot be deregistered while it has a window; a crash removes both.
func TestWindowLife(t *testing.T) {
	p := newPair(t, nil)
	piece, mw := windowed(t, p.b, 100)
	p.post(t, p.b, verbs.SendWR{Op: verbs.OpBindMW, SGL: []verbs.SGE{piece}, RKey: verbs.NextRKey(mwKey(t, mw)), BindAccess: verbs.RemoteRead})
	var below *MR
	for mr := range p.b.e.Tables.mrs {
		if mr.region.LKey() == piece.LKey {
			below = mr
		}
	}
	if err := below.Dereg(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("region below a window: %v", err)
	}
	if err := p.b.qp.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := below.Dereg(); err != nil {
		t.Errorf("after its queue pair went: %v", err)
	}
	if err := p.b.pd.Dealloc(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("domain with a window: %v", err)
	}
	p.b.e.Down(0)
	if err := mw.Dealloc(); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("after a crash: %v", err)
	}
	if _, err := p.b.e.AllocMW(p.b.pd); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("in a dead domain: %v", err)
	}
}

// dmRegion registers device memory.
func dmRegion(t testing.TB, s *side, d *DM, off, n int) (*MR, uint32) {
	t.Helper()
	mr, err := s.e.RegDM(s.pd, d, off, n, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	if err != nil {
		t.Fatal(err)
	}
	r, err := mr.Region()
	if err != nil {
		t.Fatal(err)
	}
	if r.Base() != 0 {
		t.Errorf("the region begins at %#x", r.Base())
	}
	return mr, r.RKey()
}

// Peers read, write and add to device memory at addresses from 0 on. Its owner uses it through its
// methods and as local memory of work requests.
func TestDeviceMemory(t *testing.T) {
	p := newPair(t, nil)
	d, err := p.b.e.AllocDM(4096)
	if err != nil {
		t.Fatal(err)
	}
	mr, key := dmRegion(t, p.b, d, 1024, 2048)
	fill(p.a.buf[:2000], 4)
	p.post(t, p.a,
		verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 2000)}, RemoteAddr: 48, RKey: key},
		verbs.SendWR{Op: verbs.OpRead, SGL: []verbs.SGE{p.a.sge(4000, 2000)}, RemoteAddr: 48, RKey: key},
		verbs.SendWR{Op: verbs.OpFetchAdd, SGL: []verbs.SGE{p.a.sge(8000, 8)}, RemoteAddr: 8, RKey: key, CompareAdd: 5},
		verbs.SendWR{Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{p.a.sge(8000, 8)}, RemoteAddr: 8, RKey: key, CompareAdd: 5, Swap: 1 << 40},
	)
	p.run(t, p.now+second)
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.Success {
		t.Fatalf("%+v", wc)
	}
	got := make([]byte, 2000)
	if err := d.ReadAt(got, 1024+48); err != nil || string(got) != string(p.a.buf[:2000]) || string(p.a.buf[4000:6000]) != string(got) {
		t.Errorf("other bytes, %v", err)
	}
	if err := d.WriteAt([]byte("hi"), 1024); err != nil {
		t.Fatal(err)
	}
	p.post(t, p.b, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{{Addr: 0, Length: 2, LKey: mr.region.LKey()}}, RemoteAddr: p.a.base + 100, RKey: p.a.key})
	p.run(t, p.now+second)
	if string(p.a.buf[100:102]) != "hi" {
		t.Error("device memory as the source of a WRITE")
	}
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Inline, Data: []byte("x"), RemoteAddr: 2048, RKey: key})
	p.run(t, p.now+second)
	if wc := p.a.poll(t); len(wc) != 1 || wc[0].Status != verbs.RemAccessErr {
		t.Errorf("behind the region: %+v", wc)
	}
}

// Device memory has one budget for the NIC; freed memory can be allocated again.
func TestDeviceMemoryBudget(t *testing.T) {
	s := newSide(t, newEngine(t, "a", 1, macA, nil, ipA))
	if d := s.e.Device(); d.MaxDM != 256<<10 || d.MaxSRQ != 4096 || d.MaxAH != 65536 {
		t.Errorf("%+v", d)
	}
	d, err := s.e.AllocDM(200 << 10)
	if err != nil || d.Len() != 200<<10 {
		t.Fatal(err)
	}
	alloc := func(n int) error { _, err := s.e.AllocDM(n); return err }
	for n, want := range map[int]error{0: verbs.ErrInvalid, -1: verbs.ErrInvalid, 56<<10 + 1: verbs.ErrLimit} {
		if err := alloc(n); !errors.Is(err, want) {
			t.Errorf("%d bytes: %v", n, err)
		}
	}
	const huge = int(^uint(0) >> 1)
	for _, piece := range [][2]int{{-1, 8}, {0, 200<<10 + 1}, {huge, 2}, {8, huge}, {8, -1}} {
		if _, err := s.e.RegDM(s.pd, d, piece[0], piece[1], 0); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("region %v: %v", piece, err)
		}
	}
	if err := d.WriteAt(make([]byte, 2), 200<<10-1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("write behind: %v", err)
	}
	mr, _ := dmRegion(t, s, d, 0, 8)
	if err := d.Free(); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("freed below a region: %v", err)
	}
	if err := mr.Dereg(); err != nil {
		t.Fatal(err)
	}
	if err := d.Free(); err != nil {
		t.Fatal(err)
	}
	if err := d.ReadAt(make([]byte, 1), 0); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("read after free: %v", err)
	}
	if err := alloc(256 << 10); err != nil {
		t.Errorf("all of it: %v", err)
	}
	s.e.Down(0)
	if err := alloc(1); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("of a dead NIC: %v", err)
	}
	s.e.Up()
	if err := alloc(256 << 10); err != nil {
		t.Errorf("of a fresh NIC: %v", err)
	}
}

// Atomics of many queue pairs, of two NICs and of the owner itself, on one word of device memory
// are executed one after the other: every FETCH_ADD returns another value, and of the CMP_SWAPs
// with the same compare value one succeeds.
func TestAtomicsSerialise(t *testing.T) {
	p := newPair(t, nil)
	d, err := p.b.e.AllocDM(64)
	if err != nil {
		t.Fatal(err)
	}
	_, key := dmRegion(t, p.b, d, 0, 64)
	type adder struct {
		s *side
		q *QP
	}
	var adders []adder
	for range 6 {
		a, _ := sharedPair(t, p, nil, verbs.RC)
		adders = append(adders, adder{p.a, a})
	}
	for range 2 { // queue pairs of b's NIC to itself
		x, y := newQP(t, p.b), newQP(t, p.b)
		connect(t, 0, x, y, 0, verbs.MTU1024)
		connect(t, 0, y, x, 0, verbs.MTU1024)
		adders = append(adders, adder{p.b, x})
	}
	r := rand.New(rand.NewPCG(1, 8))
	const rounds = 40
	slot := map[*side]int{}
	posted := 0
	for range rounds {
		for _, i := range r.Perm(len(adders)) {
			x := adders[i]
			off := 8 * slot[x.s]
			slot[x.s]++
			if err := x.q.PostSend(p.now, []verbs.SendWR{
				{Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{x.s.sge(off, 8)}, RemoteAddr: 8, RKey: key, CompareAdd: 1},
				{Op: verbs.OpCmpSwap, SGL: []verbs.SGE{x.s.sge(60000, 8)}, RemoteAddr: 16, RKey: key, CompareAdd: 0, Swap: uint64(i) + 1},
			}, &x.s.out); err != nil {
				t.Fatal(err)
			}
			if posted++; r.IntN(3) == 0 {
				p.settle(t)
			}
		}
	}
	p.run(t, p.now+second)
	seen := map[uint64]bool{}
	for s, n := range slot {
		for i := range n {
			var word [8]byte
			copy(word[:], s.buf[8*i:])
			v := nativeWord(word[:])
			if seen[v] || v >= uint64(posted) {
				t.Fatalf("value %d was seen twice or is out of range", v)
			}
			seen[v] = true
		}
	}
	var end [16]byte
	if err := d.ReadAt(end[:], 8); err != nil || nativeWord(end[:8]) != uint64(posted) || len(seen) != posted {
		t.Errorf("the sum is %d, want %d; %d values seen", nativeWord(end[:8]), posted, len(seen))
	}
	if w := nativeWord(end[8:]); w == 0 || w > uint64(len(adders)) {
		t.Errorf("the lock is held by %d", w)
	}
}

func nativeWord(b []byte) uint64 { return binary.NativeEndian.Uint64(b) }

func newQP(t testing.TB, s *side) *QP {
	t.Helper()
	q, err := s.e.CreateQP(s.pd, s.cq, s.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	return q
}
