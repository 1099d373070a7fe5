package device

import (
	"sync"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// An application that watches its memory and never polls sees a peer's WRITE, because the progress
// goroutine executes it.
func TestWatchingMemory(t *testing.T) {
	_, a, b := newPair(t, 0, memcable.Config{})
	for i := uint64(1); i <= 50; i++ {
		must(t, a.mr.Store64(0, i))
		must(t, a.qp.PostSend(verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
		for end := time.Now().Add(2 * time.Minute); ; {
			if v, err := b.mr.Load64(0); err != nil || v == i {
				must(t, err)
				break
			}
			if time.Now().After(end) {
				t.Fatalf("WRITE %d never became visible", i)
			}
		}
		a.one(t)
	}
}

// If an application stops polling, the progress goroutine goes on to answer peers.
func TestPollingThenComputing(t *testing.T) {
	_, a, b := newPair(t, 0, memcable.Config{})
	var wc [1]verbs.WC
	for range 20 {
		for range 100 {
			if n, err := b.cq.Poll(wc[:]); n != 0 || err != nil {
				t.Fatalf("Poll: %d, %v", n, err)
			}
		}
		must(t, a.qp.PostSend(verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}))
		if wc := a.one(t); wc.Status != verbs.Success {
			t.Fatal(wc.Status)
		}
	}
}

// Polling without waiting makes progress and fires timers.
func TestPollOnly(t *testing.T) {
	d, a, b := newPair(t, 0, memcable.Config{})
	var wc [1]verbs.WC
	poll := func() verbs.Status {
		for end := time.Now().Add(20 * time.Second); time.Now().Before(end); {
			if n, err := a.cq.Poll(wc[:]); n == 1 || err != nil {
				must(t, err)
				return wc[0].Status
			}
		}
		t.Fatal("no completion")
		return 0
	}
	wr := verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled | verbs.Inline, Data: []byte("x"), RemoteAddr: b.mr.Addr(), RKey: b.mr.RKey()}
	must(t, a.qp.PostSend(wr))
	if s := poll(); s != verbs.Success {
		t.Error(s)
	}
	d[1].Down()
	must(t, a.qp.PostSend(wr))
	if s := poll(); s != verbs.RetryExcErr {
		t.Errorf("peer down: %v", s)
	}
}

// The random numbers of an application are safe for all of its threads, and a function of the seed.
func TestRuntimeRand(t *testing.T) {
	d := openPair(t, 0, memcable.Config{})
	x, y := d[0].Context().Runtime(), d[0].Context().Runtime()
	if x.Rand().Uint64() == y.Rand().Uint64() {
		t.Error("two contexts draw the same numbers")
	}
	if NewRuntime(nil, 7).Rand().Uint64() != NewRuntime(nil, 7).Rand().Uint64() {
		t.Error("the seed does not decide")
	}
	seen := make(map[uint64]bool)
	var mu sync.Mutex
	for range 8 {
		x.Go("draw", func() {
			for range 100 {
				v := x.Rand().Uint64()
				mu.Lock()
				if seen[v] {
					t.Errorf("%#x was drawn twice", v)
				}
				seen[v] = true
				mu.Unlock()
			}
		})
	}
	x.Wait()
}
