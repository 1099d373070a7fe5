package perf_test

import (
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Many clients share one lock, at any of its places. A word that a dead client has left locked does
// not block a client for ever, and at the end the lock is free.
func TestLocksAreTakenAndReleased(t *testing.T) {
	memory := make([]byte, 1<<16)
	word := memory[len(memory)-8:]
	binary.NativeEndian.PutUint64(word, 77)
	r := newRig(t, memservice.Config{Service: memservice.Service, Buffer: memory, Locks: 1 << 10})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		for _, device := range []bool{false, true} {
			res, err := r.run(ctx, m, perf.Config{Test: perf.Locks, OneWord: perf.OneWord{Clients: 8, Span: 10 * time.Millisecond, Device: device}})
			if err != nil {
				t.Fatal(err)
			}
			h, err := res.Locks.Histogram()
			if err != nil {
				t.Fatal(err)
			}
			l := res.Locks
			if l.Acquired < 100 || l.Attempts < l.Acquired || h.TotalCount() < int64(l.Acquired) || h.TotalCount() > int64(l.Acquired)+8 {
				t.Errorf("device %v: %d CAS, %d locks, %d waits", device, l.Attempts, l.Acquired, h.TotalCount())
			}
			if (l.TakenOver == 1) == device {
				t.Errorf("device %v: %d locks were taken over", device, l.TakenOver)
			}
			var b strings.Builder
			if err := res.WriteText(&b); err != nil || !strings.Contains(b.String(), "locks and releases") {
				t.Errorf("%q, %v", b.String(), err)
			}
		}
	})
	if got := binary.NativeEndian.Uint64(word); got != 0 {
		t.Errorf("the lock is held by %#x", got)
	}
}

func TestLocksRefuseWhatTheyCannotDo(t *testing.T) {
	for _, c := range []perf.Config{
		{Test: perf.Locks, OneWord: perf.OneWord{Clients: perf.MaxClients + 1}},
		{Test: perf.Locks, OneWord: perf.OneWord{Span: -1}},
		{Test: perf.Contend, OneWord: perf.OneWord{Span: time.Second}},
		{Test: perf.WriteBW, OneWord: perf.OneWord{Device: true}},
		{Test: perf.WriteBW, OneWord: perf.OneWord{Held: "all"}},
	} {
		if err := c.Validate(); err == nil {
			t.Errorf("%+v is accepted", c)
		}
	}
	r := newRig(t, memservice.Config{Service: memservice.Service, Region: 1 << 16})
	r.client(func(ctx verbs.Context, m rdmacm.Manager) {
		_, err := r.run(ctx, m, perf.Config{Test: perf.Locks, OneWord: perf.OneWord{Device: true}})
		if err == nil || !strings.Contains(err.Error(), "no lock table") {
			t.Errorf("without a lock table: %v", err)
		}
	})
}
