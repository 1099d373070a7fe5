package meta

import (
	"net/netip"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
)

// inquiry asks memory services whether they run, on a thread of its own: a service that does not
// run must not delay the answers to clients.
type inquiry struct {
	mu     sync.Mutex // guards the fields below; not held during a request
	asking bool
	// ended is true if there is an outcome that take has not returned yet. ran is true if all
	// services that were asked have answered. until is when the outcome stops being fresh (see
	// take).
	ended, ran bool
	until      clock.Time
}

// begin starts a thread that asks the memory services of these servers, one after the other, each
// for at most `limit`, until one does not answer. Later the method `take` returns the outcome.
// begin returns false if an earlier inquiry is still going on.
func (q *inquiry) begin(mem *memories, limit time.Duration, servers ...netip.Addr) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.asking {
		return false
	}
	q.asking, q.ended = true, false
	self := mem.self
	mem.rt.Go("services", func() {
		ran := true
		for _, addr := range servers {
			_, err := memservice.WhoIs(mem.cfg.Context, mem.cfg.Manager, addr, self, mem.rt.Now().Add(limit))
			if ran = err == nil; !ran {
				break
			}
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.asking, q.ended, q.ran, q.until = false, true, ran, mem.rt.Now().Add(limit)
	})
	return true
}

// take returns the outcome of the last inquiry, and forgets it. ran is true if all services have
// answered. known is false while the inquiry is going on, and if its outcome was taken before.
// fresh is true if at most `limit` (see begin) has passed since the inquiry ended.
func (q *inquiry) take(now clock.Time) (ran, fresh, known bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	known, q.ended = q.ended, false
	return q.ran, now <= q.until, known
}

func (q *inquiry) wait(mem *memories) {
	for {
		q.mu.Lock()
		asking := q.asking
		q.mu.Unlock()
		if !asking {
			return
		}
		mem.rt.Sleep(waitPause)
	}
}
