package insim

import (
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// BulkFlow is what a bulk sender has in flight, on a rack and in its twin.
var BulkFlow = Requests{Bytes: bulkMessage, Depth: bulkDepth}

// BulkFlows are hosts of a rack file that WRITE to memory servers from Start until the simulation ends: host From[i] to
// host To[i].
type BulkFlows struct {
	Rack     *simrack.Rack
	From, To []string
}

// Lend makes the memory servers lend memory. It is called before the simulation runs.
func (b *BulkFlows) Lend() {
	lent := make(map[string]bool)
	for _, name := range b.To {
		if lent[name] {
			continue
		}
		lent[name] = true
		h := b.Rack.Host(name)
		h.Go("bulk memory", true, func(ctx verbs.Context) {
			b.Rack.Stop(h.Lend(ctx, simrack.Passive{Bytes: bulkMessage, Service: bulkService}))
		})
	}
}

// Start starts the senders.
func (b *BulkFlows) Start() {
	for i, name := range b.From {
		h := b.Rack.Host(name)
		h.Go("bulk", true, func(ctx verbs.Context) {
			params := rdmacm.Params{PathMTU: verbs.MTU1024, Timeout: bulkTimeout}
			l, err := lineTo{bulkService, bulkMessage, bulkDepth, params}.dial(h, ctx, b.Rack.Host(b.To[i]), ctx.Runtime().Now().Add(time.Second))
			if err == nil {
				err = l.repeat("bulk sender", bulkMessage, clock.Never, func(int) {})
			}
			b.Rack.Stop(err)
		})
	}
}

// Sent is how many bytes of links the frames of the senders have taken until now.
func (b *BulkFlows) Sent() (n uint64) {
	for _, name := range b.From {
		in := b.Rack.Host(name).Ingress()
		n += in.RxBytes + in.RxPackets*portqueue.Overhead
	}
	return n
}
