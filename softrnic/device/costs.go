package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/paced"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// costs lets the frames of a device take the times of a cost model (Config.Costs). Without a model, nic
// is nil, and frames take no time.
type costs struct {
	model *cost.Model
	seed  uint64
	nic   *paced.NIC
	// posted is true while the device sends the frames of a call by which a program posts.
	posted bool
	// in and out have the frames that have spent their time: for the engine, and for the port.
	in, out packetio.Batch
}

func (p *costs) start(e *engine.Engine, m *cost.Model, seed uint64) {
	p.model, p.seed = m, seed
	p.restart(e)
}

// restart begins without work in progress, as a NIC that was just started.
func (p *costs) restart(e *engine.Engine) {
	if p.model == nil {
		return
	}
	p.nic = paced.NewNIC(p.model, func(rkey uint32, va uint64, n int) ([]byte, bool) {
		if t := e.Tables.Mem(); t != nil {
			return t.Locate(rkey, va, n)
		}
		return nil, false
	}, p.seed)
}

// count adds the frames that were dropped because too many wait, since the NIC was started or restarted.
func (p *costs) count(c *metrics.NIC) {
	if p.nic == nil {
		return
	}
	n := p.nic.Dropped()
	c.RxHeldDropped += n.Arrived
	c.TxHeldDropped += n.Made
}

func (p *costs) deadline() clock.Time {
	if p.nic == nil {
		return clock.Never
	}
	return p.nic.Deadline()
}

// arrived takes the frames of a receive call.
func (p *costs) arrived(now clock.Time, frames []packetio.Frame) {
	for i := range frames {
		p.nic.Arrived(now, frames[i])
	}
}

// made takes the frames that the engine has made, and resets their batch.
func (p *costs) made(now clock.Time, out *packetio.Batch) {
	for i := range out.Frames {
		p.nic.Made(now, out.Frames[i], p.posted)
	}
	out.Reset()
}

// due handles the frames of a device that have spent their time.
func (p *costs) due(c *core, now clock.Time) {
	if p.nic == nil {
		return
	}
	p.nic.Due(now, &p.in, &p.out)
	if len(p.out.Frames) > 0 {
		c.egress.send(c, &p.out)
	}
	if len(p.in.Frames) > 0 {
		c.handle(now, p.in.Frames)
		p.in.Reset()
	}
}
