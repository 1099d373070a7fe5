package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// shell is the device as one context sees it.
type shell struct {
	*Runtime
	d *Device
}

var (
	_ verbsengine.Shell  = (*shell)(nil)
	_ verbsengine.Poller = (*shell)(nil)
	_ verbsengine.Driver = (*shell)(nil)
)

// Enter takes exclusive use of the engine.
func (b *shell) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	now := b.d.enter()
	return now, b.d.e, &b.d.out
}

// Leave ends it.
func (b *shell) Leave() { b.d.leave() }

// patientPolls is how many polls in a row may find nothing before each one yields the processor. An
// application that waits after an empty poll never reaches it; one that spins on Poll would
// otherwise keep its peers from answering.
const patientPolls = 4

// Progress drains the port once.
func (b *shell) Progress() {
	if b.d.progress() {
		b.d.emptyPolls = 0
		return
	}
	b.d.emptyPolls++
	b.d.idle = b.d.emptyPolls > patientPolls
}

// Drive drains the port once.
func (b *shell) Drive() bool { return b.d.progress() }

// Await waits for a condition.
func (b *shell) Await(c verbsengine.Condition, deadline clock.Time) error {
	return b.d.await(c, deadline)
}

// Polled keeps the progress goroutine away for a while. Only polls do: an application that spins on
// its memory, or that posts and computes, needs that goroutine.
func (b *shell) Polled() { b.d.polled.Add(1) }
