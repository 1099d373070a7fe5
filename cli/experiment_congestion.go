package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// sendersRack is the rack file for senders.
const sendersRack = "topo/racks/dcqcn-slow.yaml"

// rackSenders are senders on a rack in slow motion.
type rackSenders struct {
	on   *rackPlatform
	from []string
	span time.Duration // by the rack's clock
	late [2]uint64     // bursts that began late, and all, of the senders' NICs
	rate int64         // of the port
}

// Congestion runs senders on the rack, and then in the simulator with the rack's file.
func (p *rackPlatform) Congestion(ctx context.Context, l experiment.Congestion) (out experiment.CongestionResult, err error) {
	model, err := slowRack{p, sendersRack}.ready(ctx)
	if err != nil {
		return out, err
	}
	r := &rackSenders{on: p, from: p.hosts[:l.Senders], span: cmp.Or(l.Span, sendersSpan/time.Duration(p.rack.Slow))}
	t := &experiment.Twin{Slow: p.rack.Slow, Span: r.span}
	run, err := r.measure(ctx)
	if err != nil {
		return out, err
	}
	t.Busy = loadAverage()
	if t.Rack, err = run.Stats(r.rate, portqueue.Overhead); err != nil {
		return out, err
	}
	if r.late[1] > 0 {
		t.Late = float64(r.late[0]) / float64(r.late[1])
	}
	twin := insim.Senders{Rack: p.rack, Cost: model, From: r.from, To: p.to, Span: r.span, Every: sendersSample / time.Duration(p.rack.Slow), Seed: l.Seed}
	_, t.Sim, err = twin.Run(ctx)
	out.Twin = t
	return out, err
}

// loadAverage returns the load average of the machine of the last minute, 0 if the kernel does not tell.
func loadAverage() (n float64) {
	data, _ := os.ReadFile("/proc/loadavg")
	_, _ = fmt.Sscan(string(data), &n)
	return n
}

// measure runs the senders, and samples the switch's counters in the second half of the time in which all send.
func (r *rackSenders) measure(ctx context.Context) (run experiment.SenderRun, err error) {
	flows := rackFlows{on: r.on, span: r.span}
	for _, host := range r.from {
		flows.list = append(flows.list, rackFlow{host, r.on.to, insim.Requests{Bytes: insim.SenderMessage, Depth: insim.SenderDepth}})
	}
	err = flows.run(ctx, func(ctx context.Context) error { return r.observe(ctx, &flows, &run) })
	return run, err
}

// observe fills in the run.
func (r *rackSenders) observe(ctx context.Context, flows *rackFlows, run *experiment.SenderRun) error {
	first, err := r.sample(ctx, time.Now())
	if err != nil {
		return err
	}
	began, err := flows.allSend(ctx, func() (bool, error) {
		s, err := r.sample(ctx, time.Now())
		all := err == nil
		for i := range s.Each {
			all = all && s.Each[i]-first.Each[i] >= insim.SenderMessage
		}
		return all, err
	})
	if err != nil {
		return err
	}
	real := r.span * time.Duration(r.on.rack.Slow)
	if err := pause(ctx, real/2-time.Since(began)); err != nil {
		return err
	}
	before, err := r.counted(ctx)
	if err != nil {
		return err
	}
	tick := time.NewTicker(sendersSample)
	defer tick.Stop()
	for time.Since(began) < real {
		s, err := r.sample(ctx, began)
		if err != nil {
			return err
		}
		run.Samples = append(run.Samples, s)
		if err := flows.going("before the measured time was over"); err != nil {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	after, err := r.counted(ctx)
	run.CNPs, run.Again = after[0]-before[0], after[1]-before[1]
	return errors.Join(err, r.pace(ctx))
}

// sample reads the switch's counters.
func (r *rackSenders) sample(ctx context.Context, began time.Time) (s experiment.SenderSample, err error) {
	counters, queues, at, err := portsOf(ctx, r.on.rack.Name)
	if err != nil {
		return s, err
	}
	s.At = at.Sub(began) / time.Duration(r.on.rack.Slow)
	if r.rate = queues.Rate; r.rate == 0 {
		return s, errNoQueues
	}
	for _, host := range r.from {
		i := slices.IndexFunc(counters.Ports, func(p switchd.PortCounters) bool { return p.Host == host })
		if i < 0 {
			return s, fmt.Errorf("the switch has no port of %s", host)
		}
		s.Each = append(s.Each, counters.Ports[i].RxBytes)
	}
	i := slices.IndexFunc(queues.Ports, func(p switchd.PortQueues) bool { return p.Host == r.on.to })
	if i < 0 {
		return s, fmt.Errorf("the switch has no port of %s", r.on.to)
	}
	for _, q := range queues.Ports[i].Priorities {
		s.Queue, s.Bytes = s.Queue+q.Bytes, s.Bytes+q.TxBytes
		s.Packets, s.Marked = s.Packets+q.TxPackets, s.Marked+q.Marked
	}
	return s, nil
}

// counted returns how many CNPs the receiver has sent, and how many packets were sent to it again.
func (r *rackSenders) counted(ctx context.Context) (n [2]uint64, err error) {
	for i, host := range append([]string{r.on.to}, r.from...) {
		m, err := countersOf(ctx, r.on.cmd, host)
		if err != nil {
			return n, err
		}
		if i == 0 {
			n[0] = m["np_cnp_sent"]
		} else {
			n[1] += m["roce_retrans_pkts"]
		}
	}
	return n, nil
}

// pace adds up how many bursts of the senders' queue pairs began late.
func (r *rackSenders) pace(ctx context.Context) error {
	for _, host := range r.from {
		client, err := hostControl(r.on.cmd, host)
		if err != nil {
			return err
		}
		var c hostd.Congestion
		if err := ask(ctx, client, host, http.MethodGet, hostd.PathCongestion, nil, &c); err != nil {
			return err
		}
		for i := range c.QPs {
			if q := &c.QPs[i]; strings.TrimSpace(q.Peer) != "" {
				r.late[0], r.late[1] = r.late[0]+q.Late, r.late[1]+q.Waits
			}
		}
	}
	return nil
}
