package verbsengine

import (
	"runtime"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// weighingShell is a shell that measures how much memory is allocated between Enter and Leave.
type weighingShell struct {
	*fakeShell
	before, most uint64 // bytes
}

func allocated() uint64 {
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.TotalAlloc
}

func (s *weighingShell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	now, e, out := s.fakeShell.Enter()
	s.before = allocated()
	return now, e, out
}

func (s *weighingShell) Leave() {
	s.most = max(s.most, allocated()-s.before)
	s.fakeShell.Leave()
}

// A deep completion queue takes no memory for its depth, neither when it is created nor when its
// depth changes: the kernel clears each page, and others could not use the NIC meanwhile.
func TestNICIsNotHeldForTheMemoryOfQueues(t *testing.T) {
	s := &weighingShell{fakeShell: newFake(t)}
	ctx := New(s)
	const depth = 1 << 18
	start := allocated()
	q, err := ctx.CreateCQ(depth)
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Resize(depth / 2); err != nil {
		t.Fatal(err)
	}
	if all := allocated() - start; all > depth {
		t.Errorf("two empty queues have %d bytes", all)
	}
	if err := q.Destroy(); err != nil {
		t.Fatal(err)
	}
	if err := q.Resize(depth); err == nil {
		t.Error("a destroyed queue was resized")
	}
	if s.most > depth {
		t.Errorf("%d bytes were allocated while the NIC was held", s.most)
	}
}
