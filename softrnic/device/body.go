package device

import (
	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// body is the device as one context sees it.
type body struct {
	*Runtime
	d *Device
}

var (
	_ binding.Body   = (*body)(nil)
	_ binding.Poller = (*body)(nil)
	_ binding.Driver = (*body)(nil)
)

// Enter takes exclusive use of the engine.
func (b *body) Enter() (clock.Time, *engine.Engine, *packetio.Batch) {
	now := b.d.enter()
	return now, b.d.e, &b.d.out
}

// Leave ends it.
func (b *body) Leave() { b.d.leave() }

// patientPolls is how many polls in a row may find nothing before each one yields the processor. An application that
// waits after a poll in vain never gets there; one that spins on Poll would otherwise keep its peers from answering.
const patientPolls = 4

// Progress drains the port once.
func (b *body) Progress() {
	if b.d.progress() {
		b.d.vain = 0
		return
	}
	b.d.vain++
	b.d.idle = b.d.vain > patientPolls
}

// Drive drains the port once.
func (b *body) Drive() bool { return b.d.progress() }

// Await waits for a condition.
func (b *body) Await(c binding.Condition, deadline clock.Time) error { return b.d.await(c, deadline) }

// Polled keeps the progress goroutine away for a while. Only polls do: an application that spins on its memory, or
// that posts and computes, needs that goroutine.
func (b *body) Polled() { b.d.polled.Add(1) }
