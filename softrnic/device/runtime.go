package device

import (
	"math/rand/v2"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Runtime is the verbs.Runtime of one application in real time. The application's threads are
// goroutines, and all of them may call the methods.
type Runtime struct {
	clock *real.Clock
	rand  *rand.Rand
	wg    sync.WaitGroup
	hang  *Hang // stops the threads
}

var _ verbs.Runtime = (*Runtime)(nil)

func NewRuntime(c *real.Clock, seed uint64) *Runtime {
	src := &lockedSource{src: rand.NewPCG(seed, 0x72646d61)}
	return &Runtime{clock: c, rand: rand.New(src)}
}

func (r *Runtime) Now() clock.Time { return r.clock.Now() }

// Sleep blocks the calling thread for d by the clock, and longer if the application hangs.
func (r *Runtime) Sleep(d time.Duration) {
	time.Sleep(r.clock.Real(d))
	r.hang.Wait()
}

// AwaitHang blocks while the application hangs; see Hang. It is for threads that work on memory and
// do not call the NIC.
func (r *Runtime) AwaitHang() { r.hang.Wait() }

func (r *Runtime) Go(_ string, f func()) { r.wg.Go(f) }

func (r *Runtime) Wait() { r.wg.Wait() }

// Rand is safe for all threads of the application. Which thread draws which number depends on the
// scheduler.
func (r *Runtime) Rand() *rand.Rand { return r.rand }

// lockedSource is a source of random numbers that several goroutines may use. A rand.Rand over it
// is then safe, too, because it has no state of its own.
type lockedSource struct {
	mu  sync.Mutex // guards src
	src rand.Source
}

func (s *lockedSource) Uint64() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.src.Uint64()
}
