package device

import (
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// egress has the queues of a NIC with a rate (Config.Queues). Frames wait in them, and not in the link,
// so that a pause frame of the switch stops them. Without a rate, bank is nil, and frames go to the
// port at once.
type egress struct {
	bank *portqueue.Bank
	out  packetio.Batch // frames that leave
	none packetio.Batch // is empty
}

func (g *egress) start(cfg *portqueue.Config) (err error) {
	if cfg != nil {
		g.bank, err = portqueue.New(*cfg, 1)
	}
	return err
}

func (g *egress) deadline() clock.Time {
	if g.bank == nil {
		return clock.Never
	}
	return g.bank.Deadline()
}

// control takes the pause frames out of the frames of a receive call, and does what they say.
func (g *egress) control(now clock.Time, rx *packetio.Batch) {
	kept := rx.Frames[:0]
	for _, f := range rx.Frames {
		if !g.bank.Control(now, 0, f.Data) {
			kept = append(kept, f)
		}
	}
	rx.Frames = kept
}

// send sends the frames of a batch of a device, or queues them and sends those that may leave now. It
// resets the batch.
func (g *egress) send(c *core, frames *packetio.Batch) {
	if g.bank != nil {
		now := c.clock.Now()
		for _, f := range frames.Frames {
			g.bank.Offer(now, -1, 0, f, "")
		}
		frames.Reset()
		frames = &g.out
		g.bank.Due(now, frames)
	}
	if len(frames.Frames) == 0 {
		return
	}
	c.mark(pathtrace.Sending)
	if _, err := c.link.port.Send(frames); err != nil {
		c.fail(err)
	}
	c.mark(pathtrace.Sent)
	frames.Reset()
}

// due sends the frames of a device whose time has come.
func (g *egress) due(c *core, now clock.Time) {
	if g.bank != nil && g.bank.Deadline() <= now {
		g.send(c, &g.none)
	}
}

// clear drops the frames that wait: the NIC has crashed.
func (g *egress) clear(now clock.Time) {
	if g.bank != nil {
		g.bank.Discard(now, 0)
	}
}

// samples returns the counters of Device.QueueSamples.
func (g *egress) samples(now clock.Time) (list []metrics.Sample) {
	if g.bank == nil {
		return nil
	}
	for _, q := range g.bank.Port(now, 0) {
		if q.TxPackets == 0 && q.RxPause == 0 {
			continue
		}
		add := func(name, help string, value uint64) {
			list = append(list, metrics.Sample{Name: fmt.Sprintf(name, q.Priority), Help: fmt.Sprintf(help, q.Priority), Value: value})
		}
		add("tx_prio%d_packets", "packets of priority %d sent", q.TxPackets)
		add("tx_prio%d_bytes", "bytes of priority %d sent", q.TxBytes)
		add("tx_prio%d_discards", "packets of priority %d that found the queue of the NIC full", q.Dropped)
		add("rx_prio%d_pause", "pause frames for priority %d received", q.RxPause)
		add("rx_prio%d_pause_duration", "microseconds that priority %d was paused", uint64(q.RxDuration))
		add("rx_prio%d_pause_transition", "how often a pause of priority %d has begun", q.RxTransition)
	}
	return list
}
