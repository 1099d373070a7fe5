package insim

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Senders are hosts of a rack file that WRITE to one host of it all the time, as those of a rack in slow motion do:
// SenderMessage bytes in each WRITE, SenderDepth of them in flight, path MTU 1024.
type Senders struct {
	Rack *rackfile.Rack
	// Cost is the cost model of the rack's NICs, links and switch.
	Cost *cost.Model
	From []string
	To   string
	// Span is how long they send; its second half is measured, by a sample each Every.
	Span, Every time.Duration
	Seed        uint64
}

const (
	SenderMessage, SenderDepth = incastMessage, incastDepth
	// SenderTimeout is the code of the ACK timeout of the senders' connections: 17 ms, longer than any queue.
	SenderTimeout = 12
)

// errNoPortRate is the error of a rack file whose ports have no queues.
var errNoPortRate = errors.New("the ports of the rack have no rate (key ports of the switch), so that nothing congests")

// Run runs the senders. The samples are those of the measured time, the times those since the start.
func (l *Senders) Run(ctx context.Context) (out experiment.SenderRun, stats experiment.SenderStats, err error) {
	rack, err := simrack.New(l.Rack, simrack.Options{Seed: l.Seed, Cost: l.Cost, MaxEvents: mostEvents(l.Span), Cancelled: cancelled(ctx)})
	if err != nil {
		return out, stats, err
	}
	defer rack.Close()
	queues := rack.Queues(0)
	if queues == nil || queues.Config().Rate == 0 {
		return out, stats, errNoPortRate
	}
	r := &incastRun{load: experiment.Congestion{Senders: len(l.From)}, rack: rack, until: incastReady.Add(l.Span), to: l.To, timeout: SenderTimeout}
	r.lend()
	for i, host := range l.From {
		start(rack, host, fmt.Sprintf("sender%d", i), func(h *simrack.Host, ctx verbs.Context) error { return r.sender(h, ctx, i) })
	}
	var before [2]uint64
	half := incastReady.Add(l.Span / 2)
	for at := half; at < r.until; at = at.Add(l.Every) {
		rack.At(at, func() {
			if at == half {
				before = l.counted(rack)
			}
			out.Samples = append(out.Samples, l.sample(rack, at))
		})
	}
	if err := run(ctx, rack); err != nil {
		return out, stats, err
	}
	after := l.counted(rack)
	out.CNPs, out.Again = after[0]-before[0], after[1]-before[1]
	stats, err = out.Stats(queues.Config().Rate, portqueue.Overhead)
	return out, stats, err
}

// counted returns how many CNPs the receiver has sent, and how many packets were sent to it again.
func (l *Senders) counted(rack *simrack.Rack) (n [2]uint64) {
	n[0] = rack.Host(l.To).Counters().TxCnp
	for _, host := range l.From {
		n[1] += rack.Host(host).Counters().RetransPkts
	}
	return n
}

func (l *Senders) sample(rack *simrack.Rack, now clock.Time) experiment.SenderSample {
	s := experiment.SenderSample{At: now.Sub(incastReady)}
	for _, host := range l.From {
		s.Each = append(s.Each, rack.Host(host).Ingress().RxBytes)
	}
	_, port, _ := l.Rack.Host(l.To)
	for _, p := range rack.Queues(0).Port(now, port) {
		s.Queue, s.Bytes = s.Queue+p.Bytes, s.Bytes+p.TxBytes
		s.Packets, s.Marked = s.Packets+p.TxPackets, s.Marked+p.Marked
	}
	return s
}
