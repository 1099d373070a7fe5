package insim

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/selective"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// The way of a Recovery: two links of recoveryRate between client and server, over which a packet of
// recoveryMTU bytes of payload takes recoveryPacket. The delay of a link makes the round trip as long
// as experiment.BDP packets take to send.
const (
	recoveryRate   = 40_000_000_000
	recoveryMTU    = 1024
	recoveryPacket = 215 * time.Nanosecond // Ethernet, IPv4, UDP, BTH, payload and ICRC without FCS: 1074 bytes
	recoveryBytes  = 64 << 10
	// recoveryTimeout is the ACK timeout: 524 µs.
	recoveryTimeout = 7
	recoveryLow     = 100 * time.Microsecond
	recoveryHigh    = 320 * time.Microsecond
)

func (p *Sim) Recovery(ctx context.Context, l experiment.Recovery) (experiment.RecoveryResult, error) {
	if l.Software.Packets > 0 {
		res, err := p.software(ctx, l.Software)
		return experiment.RecoveryResult{Software: res}, err
	}
	file := "name: recovery\nhosts:\n  - {name: cn0, role: compute}\n  - {name: ms0, role: memory, memory: 16MiB}\n"
	c := transport.Recovery{Kind: l.Kind, Ahead: l.Ahead, Rate: recoveryRate}
	if l.Kind == selective.IRN {
		c.Low, c.High = recoveryLow, recoveryHigh
	}
	r, err := newRack(ctx, file, simrack.Options{
		Seed: cmp.Or(l.Seed, 1), Delay: (experiment.BDP - 3) * recoveryPacket / 4, Rate: recoveryRate, Queue: 1 << 15,
		Window: l.Window, Recovery: simrack.Recovery{Recovery: c, AckEvery: 1},
	})
	if err != nil {
		return experiment.RecoveryResult{}, err
	}
	defer r.Close()
	w := way{rack: r, from: "cn0", to: "ms0", packet: recoveryPacket}
	if l.Loss > 0 {
		w.rules = append(w.rules, LossOf(&l, w.from))
	}
	if l.Late > 0 {
		half := time.Duration(l.Late) * recoveryPacket / 2
		w.rules = append(w.rules, fault.Rule{ID: "spray", Link: w.to, Kind: fault.Delay, Dir: fault.Down, Delay: half, Jitter: half, Probability: 1})
	}
	return w.run(ctx, l)
}

// LossOf returns the rule by which packets of a load are lost on a link.
func LossOf(l *experiment.Recovery, link string) fault.Rule {
	rule := fault.Rule{ID: "loss", Link: link, Kind: fault.Loss, Dir: fault.Up, Probability: l.Loss}
	if l.BothWays {
		rule.Dir = fault.Both
	}
	return rule
}

// way is a rack with a client and a server on it. packet is how long a packet of recoveryMTU bytes of payload takes on a
// link.
type way struct {
	rack     *simrack.Rack
	from, to string
	packet   time.Duration
	rules    []fault.Rule
}

// run runs the load over the way.
func (w *way) run(ctx context.Context, l experiment.Recovery) (experiment.RecoveryResult, error) {
	cn, ms := w.rack.Host(w.from), w.rack.Host(w.to)
	ms.Go(perf.PerfService, true, func(ctx verbs.Context) {
		s, err := perf.NewServer(ctx, ms.Manager(ctx), memservice.Config{})
		if err == nil {
			err = s.Serve()
		}
		if err != nil {
			w.rack.Stop(fmt.Errorf("server: %w", err))
		}
	})
	for _, h := range w.rack.Hosts() {
		h.SetFaults(w.rules)
	}
	var res perf.Result
	start(w.rack, w.from, "client", func(h *simrack.Host, ctx verbs.Context) error {
		cfg := RecoveryTest(&l)
		cfg.To, cfg.Hooks = w.to, perf.Hooks{Counters: cn.Counters}
		var err error
		res, err = perf.Run(ctx, h.Manager(ctx), ms.Addr(), cfg, nil)
		return err
	})
	if err := run(ctx, w.rack); err != nil {
		return experiment.RecoveryResult{}, err
	}
	if res.BW == nil {
		return experiment.RecoveryResult{}, errors.New("the client has measured nothing")
	}
	return RecoveryNumbers(&l, res.BW.Average, w.packet, cn.Counters(), ms.Counters()), nil
}

// RecoveryTest returns what a client measures for a load.
func RecoveryTest(l *experiment.Recovery) perf.Config {
	return perf.Config{Test: perf.WriteBW, Size: recoveryBytes, Iters: l.Messages, Depth: 64, Path: perf.Path{MTU: recoveryMTU, Timeout: recoveryTimeout}}
}

// RecoveryNumbers returns the numbers of a load, from its rate in MiB/s, from how long a packet takes on a link, and from
// what the NICs of client and server have counted.
func RecoveryNumbers(l *experiment.Recovery, rate float64, packet time.Duration, client, server metrics.NIC) experiment.RecoveryResult {
	packets := float64(l.Messages) * recoveryBytes / recoveryMTU
	full := float64(recoveryMTU) / packet.Seconds() / (1 << 20) // MiB/s
	return experiment.RecoveryResult{
		Goodput:       rate / full,
		Transmissions: 1 + float64(client.RetransPkts)/packets,
		Twice:         float64(server.DuplicateRequest) / packets,
		Timeouts:      client.LocalAckTimeoutErr,
	}
}

// RecoveryTwin is a Recovery over the links of a rack file, whose faults delay packets.
type RecoveryTwin struct {
	Rack *rackfile.Rack
	// Cost is the cost model of the rack's NICs, links and switch.
	Cost     *cost.Model
	From, To string
}

// recoveryFrame is the length of a packet of a Recovery without FCS, in bytes: Ethernet, IPv4, UDP, BTH, payload and ICRC.
const recoveryFrame = 1074

// Packet returns how long a packet takes on a link of `rate` bits a second.
func (RecoveryTwin) Packet(rate int64) time.Duration {
	return time.Duration((recoveryFrame + portqueue.Overhead) * 8 * int64(time.Second) / rate)
}

// Run runs the load.
func (t *RecoveryTwin) Run(ctx context.Context, l experiment.Recovery) (out experiment.RecoveryResult, err error) {
	r, err := simrack.New(t.Rack, simrack.Options{Seed: l.Seed, Cost: t.Cost, Cancelled: cancelled(ctx)})
	if err != nil {
		return out, err
	}
	defer r.Close()
	queues := r.Queues(0)
	if queues == nil || queues.Config().Rate == 0 {
		return out, errNoPortRate
	}
	w := way{rack: r, from: t.From, to: t.To, packet: t.Packet(queues.Config().Rate), rules: slices.Clone(t.Rack.Faults)}
	if l.Loss > 0 {
		w.rules = append(w.rules, LossOf(&l, w.from))
	}
	return w.run(ctx, l)
}
