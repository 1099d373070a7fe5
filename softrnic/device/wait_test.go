package device

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// told is a condition that a test makes true.
type told struct{ yes, patient bool }

func (c *told) Ready(*engine.Engine) bool { return c.yes }
func (c *told) Patient() bool             { return c.patient }

// When the thread that polls has got its completion, another waiting thread goes on to poll, unless it
// is patient. The wait of a patient thread ends as any other.
func TestPatientThreadsDoNotPoll(t *testing.T) {
	d, _, _ := newPair(t, time.Hour, memcable.Config{})
	locked := func(f func()) {
		d[0].core.enter()
		defer d[0].core.leave()
		f()
	}
	for round := range 40 {
		c := &told{patient: round%2 == 1}
		locked(func() { d[0].turns.setSpinner(true) }) // the test polls, so the other thread waits
		ended := make(chan error, 1)
		go func() { ended <- d[0].turns.await(c, clock.Never) }()
		for waits := false; !waits; {
			locked(func() { waits = len(d[0].core.waiters.list) == 1 })
		}
		locked(func() {
			d[0].turns.handOver()
			if d[0].turns.spinner == c.patient {
				t.Errorf("patient %v: the thread polls: %v", c.patient, d[0].turns.spinner)
			}
			c.yes = true
			d[0].core.e.Events.Notify()
		})
		select {
		case err := <-ended:
			must(t, err)
		case <-time.After(20 * time.Second):
			t.Fatalf("round %d: the wait does not end", round)
		}
	}
}

// A patient thread that begins to wait does not poll either.
func TestAPatientThreadBeginsWithoutPolling(t *testing.T) {
	d, _, _ := newPair(t, time.Hour, memcable.Config{})
	c := &told{patient: true}
	ended := make(chan error, 1)
	go func() { ended <- d[0].turns.await(c, clock.Never) }()
	for waits := false; !waits; {
		d[0].core.enter()
		if waits = len(d[0].core.waiters.list) == 1; waits {
			c.yes = true
			d[0].core.e.Events.Notify()
		}
		if d[0].turns.spinner {
			t.Error("the thread polls")
		}
		d[0].core.leave()
	}
	must(t, <-ended)
}

// While no thread polls, frames of peers are handled soon, although a patient thread waits.
func TestAPatientThreadWaitsForAFrame(t *testing.T) {
	d, a, b := newPair(t, time.Hour, memcable.Config{})
	for i := range 20 {
		must(t, b.qp.PostRecv(verbs.RecvWR{}))
		cond := arrived{before: received(d[1]), patient: true}
		ended := make(chan error, 1)
		go func() { ended <- d[1].turns.await(&cond, clock.Never) }()
		must(t, a.qp.PostSend(verbs.SendWR{Op: verbs.OpSend, Flags: verbs.Signalled}))
		if wc := a.one(t); wc.Status != verbs.Success {
			t.Fatalf("SEND %d: %v", i, wc.Status)
		}
		must(t, <-ended)
		b.one(t)
	}
}

// arrived is the condition that a NIC has received more packets than before.
type arrived struct {
	before  uint64
	patient bool
}

func (c *arrived) Ready(e *engine.Engine) bool { return e.Counters().RcvdPkts > c.before }
func (c *arrived) Patient() bool               { return c.patient }

func received(d *Device) (n uint64) {
	d.core.enter()
	defer d.core.leave()
	return d.core.e.Counters().RcvdPkts
}
