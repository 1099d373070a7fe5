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
	d *Device
}

var (
	_ verbsengine.Shell  = (*shell)(nil)
	_ verbsengine.Poller = (*shell)(nil)
	_ verbsengine.Driver = (*shell)(nil)
)

func (b *shell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	b.hang.Wait()
	now := b.d.enter()
	return now, b.d.e, &b.d.out
}

// TryEnter is Enter, except that it returns false if another thread is inside the device.
func (b *shell) TryEnter() (now clock.Time, e *engine.Engine, out *packetio.Batch, ok bool) {
	if b.hang.waits() || !b.d.mu.TryLock() {
		return 0, nil, nil, false
	}
	return begin(b.d), b.d.e, &b.d.out, true
}

// Leave must be the deferred function itself if the caller's panics are to end the NIC alone.
func (b *shell) Leave() {
	if b.d.tell == nil {
		b.d.leave()
		return
	}
	if v := recover(); v != nil {
		broke(b.d, v)
	}
	b.d.leave()
}

// patientPolls is a number of consecutive empty polls. From then on, each further empty poll yields
// the processor, because an application that only polls would otherwise keep its peers from
// running. An application that waits after an empty poll never reaches this number.
const patientPolls = 4

func (b *shell) Progress() {
	if b.d.progress(b.d.entered) {
		b.d.emptyPolls = 0
		return
	}
	b.d.emptyPolls++
	b.d.idle = b.d.emptyPolls > patientPolls
}

// Drive handles one receive batch and the timers that are due, as Progress does, but never yields
// the processor. It reports whether there was any work.
func (b *shell) Drive() bool { return b.d.progress(b.d.clock.Now()) }

func (b *shell) Await(c verbsengine.Condition, deadline clock.Time) error {
	b.hang.Wait()
	err := b.d.await(c, deadline)
	b.hang.Wait() // the condition may have become true while the application hangs
	return err
}

// Polled is called when an application polls a completion queue. It makes the progress goroutine
// leave the port to the application for a while. That goroutine still serves applications that do
// not call Polled: those that poll only memory, or that post and then compute.
func (b *shell) Polled() { b.d.polled.Add(1) }
