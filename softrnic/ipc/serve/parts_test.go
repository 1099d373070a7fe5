package serve

import (
	"errors"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The pages of a program's rings are given out first fit, never twice, and join again when both
// neighbours are free, in whatever order they come back; then they are zero.
func TestArea(t *testing.T) {
	const page = 4096
	for _, order := range [][]int{{0, 1, 2}, {2, 1, 0}, {0, 2, 1}, {1, 0, 2}, {2, 0, 1}, {1, 2, 0}} {
		fd, err := unix.MemfdCreate("area", 0)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		n := controlPages + 6*page
		if err := unix.Ftruncate(fd, int64(n)); err != nil {
			t.Fatal(err)
		}
		b, err := unix.Mmap(fd, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
		if err != nil {
			t.Fatal(err)
		}
		a := newArea(fd, b)
		whole := slices.Clone(a.free)
		if a.size() != n || len(whole) != 1 || whole[0] != (span{controlPages, 6 * page}) {
			t.Fatalf("%+v of %d bytes", whole, a.size())
		}
		var at [3]int
		for i, pages := range []int{1, 2, 3} {
			var mem []byte
			var ok bool
			at[i], mem, ok = a.take(pages * page)
			if !ok || len(mem) != pages*page || cap(mem) != len(mem) || at[i] != controlPages+[]int{0, 1, 3}[i]*page {
				t.Fatalf("%d pages at %d, %v", pages, at[i], ok)
			}
			mem[0], mem[len(mem)-1] = 7, 7
		}
		if _, _, ok := a.take(page); ok || len(a.free) != 0 {
			t.Error("there is room in a full area")
		}
		for k, i := range order {
			a.give(at[i], (i+1)*page)
			if k == 0 {
				if _, _, ok := a.take((i + 2) * page); ok {
					t.Errorf("%d pages of %d", i+2, i+1)
				}
			}
		}
		if !slices.Equal(a.free, whole) {
			t.Errorf("order %v leaves %+v", order, a.free)
		}
		if _, mem, ok := a.take(6 * page); !ok || mem[0] != 0 || mem[page-1] != 0 || mem[6*page-1] != 0 {
			t.Errorf("order %v: not all, or not zero: %v", order, ok)
		}
		if err := unix.Munmap(b); err != nil {
			t.Fatal(err)
		}
	}
	for bytes, want := range map[int64]int{4096: 8192, 4095: 4096, 1 << 40: 1 << 36} {
		if got := (&Limits{QueueBytes: bytes}).areaLen(); got != want {
			t.Errorf("%d bytes of queues: an area of %d, want %d", bytes, got, want)
		}
	}
}

// One application may have half of what the daemon does not reserve, the next one a third, and what
// is given back may be taken again.
func TestPool(t *testing.T) {
	var p pool
	p.open(engine.Limits{QPs: 101, DeviceMemory: 1000}, Limits{Reserve: 10, ReservedDevice: 300})
	if p.size[tableQP] != 90 || p.free[tableQP] != 90 || p.size[tableDevice] != 700 { // 10.1 are reserved, so 11
		t.Errorf("%d queue pairs, %d bytes", p.size[tableQP], p.size[tableDevice])
	}
	first, second := int64(0), int64(0)
	for left, ok := p.take(tableQP, first, 1); ok; left, ok = p.take(tableQP, first, 1) {
		first++
		if left != 90-first {
			t.Fatalf("%d are left of 90 when %d are taken", left, first)
		}
	}
	for _, ok := p.take(tableQP, second, 1); ok; _, ok = p.take(tableQP, second, 1) {
		second++
	}
	if first != 45 || second != 22 {
		t.Errorf("%d and %d queue pairs", first, second)
	}
	if left, ok := p.take(tableQP, 0, 24); ok || left != 23 {
		t.Errorf("%d are left, %v", left, ok)
	}
	p.giveBack(tableQP, first)
	if _, ok := p.take(tableQP, 0, 34); !ok || p.free[tableQP] != 34 {
		t.Errorf("%d are free", p.free[tableQP])
	}
	var none pool
	none.open(engine.Limits{QPs: 100, DeviceMemory: 10}, Limits{Reserve: -1, ReservedDevice: 300})
	if none.size[tableQP] != 100 || none.size[tableDevice] != 0 {
		t.Errorf("%d queue pairs, %d bytes", none.size[tableQP], none.size[tableDevice])
	}
}

// Events wait for a program that does not read, at most maxPending of them; those of an object that
// is gone are dropped from the end.
func TestEventsOfAProgram(t *testing.T) {
	var q eventQueue
	if q.send([]byte{1}) || len(q.pending) != 0 { // no socket
		t.Errorf("%d wait", len(q.pending))
	}
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fds[1])
	q.sock = fds[0]
	defer q.close()
	sent := 0
	for ; len(q.pending) < maxPending; sent++ {
		q.send([]byte{byte(sent), byte(sent >> 8)})
	}
	if q.send([]byte{0}) || len(q.pending) != maxPending {
		t.Errorf("%d wait", len(q.pending))
	}
	if rest := q.drop(3); rest != 0 || len(q.pending) != maxPending-3 {
		t.Errorf("%d left to drop, %d wait", rest, len(q.pending))
	}
	b, got := make([]byte, 16), 0
	for ; ; got++ {
		q.flush()
		n, err := unix.Read(fds[1], b)
		if err != nil {
			break
		}
		if n != 2 || int(b[0])|int(b[1])<<8 != got {
			t.Fatalf("event %d is % x", got, b[:n])
		}
	}
	if got != sent-3 || len(q.pending) != 0 {
		t.Errorf("%d events of %d arrive, %d wait", got, sent-3, len(q.pending))
	}
	if rest := q.drop(5); rest != 5 {
		t.Errorf("%d left to drop", rest)
	}
}

// The index of an error in a list.
func TestIndexOfError(t *testing.T) {
	if indexOf(&verbs.OpError{Index: 3}) != 3 || indexOf(errors.New("x")) != 0 {
		t.Error("the index of an error")
	}
}

// noBell is an object with a bell.
type noBell struct{ belled }

// Bells are given out up to their number; one that is free again is the next.
func TestBells(t *testing.T) {
	p := &port{}
	for i := range uint32(ring.MaxBells) {
		if n, ok := p.addBell(noBell{}); !ok || n != i {
			t.Fatalf("bell %d is %d, %v", i, n, ok)
		}
	}
	if _, ok := p.addBell(noBell{}); ok {
		t.Error("there is one more")
	}
	p.bells[5] = nil
	if n, ok := p.addBell(noBell{}); !ok || n != 5 {
		t.Errorf("bell %d, %v", n, ok)
	}
}
