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
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

const (
	// sendersSpan is how long senders send by default, sendersSample how far samples of the switch's counters are
	// apart: both in real time.
	sendersSpan, sendersSample = 40 * time.Second, 20 * time.Millisecond
	// sendersSetup is how long it may take until all senders send, and sendersSpare how many times longer than it is
	// measured their run lasts.
	sendersSetup, sendersSpare = 30 * time.Second, 8
	// sendersRack is the rack file for them.
	sendersRack = "topo/racks/dcqcn-slow.yaml"
)

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
	if p.rack.Slow == 0 {
		return out, fmt.Errorf("rack %s is not in slow motion, and would measure the speed of this machine: bring up %s", p.rack.Name, sendersRack)
	}
	if err := errors.Join(p.noStores(), p.box.set(ctx, &experiment.Switch{}, nil, "")); err != nil {
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
	model, err := costs.Builtin(p.rack.Cost)
	if err != nil {
		return out, err
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
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() {
		ended <- atOnce(r.from, func(_ int, host string) error {
			_, err := r.on.perf(ctx, host, &perf.Config{
				Test: perf.WriteBW, Size: insim.SenderMessage, Depth: insim.SenderDepth, To: r.on.to, OneWord: perf.OneWord{Span: sendersSpare * r.span},
				Path: perf.Path{MTU: senderMTU, Timeout: insim.SenderTimeout},
			})
			return withNode(err, host)
		})
	}()
	err = r.observe(ctx, ended, &run)
	if ctx.Err() != nil {
		return run, errInterrupted
	}
	stop()
	if err == nil {
		late := <-ended
		_ = late // of an end in the middle there is nothing to tell
	}
	return run, err
}

// senderMTU is the path MTU of the senders' connections.
const senderMTU = 1024

// observe fills in the run. A send to `ended` means that the senders have stopped too early.
func (r *rackSenders) observe(ctx context.Context, ended <-chan error, run *experiment.SenderRun) error {
	began, err := r.allSend(ctx, ended)
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
		select {
		case err := <-ended:
			return cmp.Or(err, errors.New("the senders have stopped before the measured time was over"))
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	after, err := r.counted(ctx)
	run.CNPs, run.Again = after[0]-before[0], after[1]-before[1]
	return errors.Join(err, r.pace(ctx))
}

// allSend waits until the switch has a message of each sender, and returns when that was.
func (r *rackSenders) allSend(ctx context.Context, ended <-chan error) (began time.Time, err error) {
	first, err := r.sample(ctx, time.Now())
	for limit := time.Now().Add(sendersSetup); err == nil && time.Now().Before(limit); {
		var s experiment.SenderSample
		if s, err = r.sample(ctx, time.Now()); err != nil {
			break
		}
		all := true
		for i := range s.Each {
			all = all && s.Each[i]-first.Each[i] >= insim.SenderMessage
		}
		if all {
			return time.Now(), nil
		}
		select {
		case err = <-ended:
			return began, cmp.Or(err, errors.New("the senders have stopped at once"))
		case <-time.After(sendersSample):
		}
	}
	if err == nil {
		err = fmt.Errorf("after %v not all hosts send: this machine is too busy for this factor of slow motion", sendersSetup)
	}
	return began, err
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
		client, err := hostControl(r.on.cmd, host)
		if err != nil {
			return n, err
		}
		c, err := countersOver(ctx, client, 0)
		if err != nil {
			return n, withNode(err, host)
		}
		if m := counterMap(c).Counters; i == 0 {
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
