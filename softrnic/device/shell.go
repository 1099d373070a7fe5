package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// shell is the device for one context.
type shell struct {
	*Runtime
	d *Device
}

var (
	_ verbsengine.Shell  = (*shell)(nil)
	_ verbsengine.Poller = (*shell)(nil)
	_ verbsengine.Driver = (*shell)(nil)
)

// Enter gives the caller exclusive use of the engine.
func (b *shell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	b.hang.Wait()
	now := b.d.enter()
	return now, b.d.e, &b.d.out
}

// Leave ends the exclusive use.
func (b *shell) Leave() { b.d.leave() }

// patientPolls is a number of consecutive empty polls. Each further empty poll yields the
// processor. An application that waits after an empty poll never makes so many. One that only polls
// would otherwise keep its peers from running.
const patientPolls = 4

// Progress handles one receive batch and the timers that are due.
func (b *shell) Progress() {
	if b.d.progress() {
		b.d.emptyPolls = 0
		return
	}
	b.d.emptyPolls++
	b.d.idle = b.d.emptyPolls > patientPolls
}

// Drive does the work of Progress and does not pause.
func (b *shell) Drive() bool { return b.d.progress() }

// Await waits for a condition.
func (b *shell) Await(c verbsengine.Condition, deadline clock.Time) error {
	b.hang.Wait()
	err := b.d.await(c, deadline)
	b.hang.Wait() // the condition may have become true while the application hangs
	return err
}

// Polled is called when an application polls a completion queue. It keeps the progress goroutine
// away from the port for a while. An application that only polls its own memory, or that posts and
// computes, still needs that goroutine.
func (b *shell) Polled() { b.d.polled.Add(1) }
