package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// shell gives one context access to the device; it implements verbsengine.Shell.
type shell struct {
	*Runtime
	core  *core
	turns *turns
}

var (
	_ verbsengine.Shell  = (*shell)(nil)
	_ verbsengine.Poller = (*shell)(nil)
	_ verbsengine.Driver = (*shell)(nil)
)

func (b *shell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	b.hang.Wait()
	now := b.core.enter()
	return now, b.core.e, &b.core.out
}

// TryEnter is Enter, except that it returns false if another thread is inside the device.
func (b *shell) TryEnter() (now clock.Time, e *engine.Engine, out *packetio.Batch, ok bool) {
	if b.hang.waits() {
		return 0, nil, nil, false
	}
	now, ok = b.core.tryEnter()
	return now, b.core.e, &b.core.out, ok
}

// Leave must be the deferred function itself if the caller's panics are to end the NIC alone.
func (b *shell) Leave() {
	if b.core.ending.tell != nil {
		if v := recover(); v != nil {
			b.core.broke(v)
		}
	}
	b.core.leave()
}

// patientPolls is a number of consecutive empty polls. From then on, each further empty poll yields
// the processor, because an application that only polls would otherwise keep its peers from
// running. An application that waits after an empty poll never reaches this number.
const patientPolls = 4

func (b *shell) Progress() {
	empty := &b.core.empty
	if b.core.progress(b.core.entered) {
		empty.n = 0
		return
	}
	empty.n++
	empty.idle = empty.n > patientPolls
}

// Drive handles one receive batch and the timers that are due, as Progress does, but never yields
// the processor. It reports whether there was any work.
func (b *shell) Drive() bool { return b.core.progress(b.core.clock.Now()) }

func (b *shell) Await(c verbsengine.Condition, deadline clock.Time) error {
	b.hang.Wait()
	err := b.turns.await(c, deadline)
	b.hang.Wait() // the condition may have become true while the application hangs
	return err
}

// Polled is called when an application polls a completion queue. It makes the progress goroutine
// leave the port to the application for a while. That goroutine still serves applications that do
// not call Polled: those that poll only memory, or that post and then compute.
func (b *shell) Polled() { b.turns.polled.Add(1) }
