package scenario

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// opWatch ends the run when an operation of its client takes longer than limit. Without it, an
// operation that repeats its requests for ever would end the run only after maxEvents.
type opWatch struct {
	rack   *simrack.Rack
	client string
	limit  time.Duration
	began  clock.Time
	key    uint64
	busy   bool // an operation on the key `key` began at the time `began` and has not ended
	set    bool // the rack will call look
}

// begin is called when an operation on a key begins. The caller calls end when the operation has
// ended.
func (w *opWatch) begin(key uint64) (end func()) {
	w.began, w.key, w.busy = w.rack.Now(), key, true
	w.wait()
	return func() { w.busy = false }
}

// wait makes the rack call look when the operation has lasted for limit, unless such a call is
// scheduled already.
func (w *opWatch) wait() {
	if !w.set {
		w.set = true
		w.rack.At(w.began.Add(w.limit)+1, w.look)
	}
}

// look ends the run if the client's operation has lasted too long.
func (w *opWatch) look() {
	w.set = false
	switch now := w.rack.Now(); {
	case !w.busy:
	case now > w.began.Add(w.limit):
		w.rack.Stop(fmt.Errorf("%s: an operation on key %d, which began at %v, has not ended after %v", w.client, w.key, w.began, now.Sub(w.began)))
	default: // the present operation began later than the one for which look was scheduled
		w.wait()
	}
}
