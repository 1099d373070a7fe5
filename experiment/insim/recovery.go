package insim

import (
	"cmp"
	"context"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/perf"
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
	cn, ms := r.Host("cn0"), r.Host("ms0")
	ms.Go(perf.PerfService, true, func(ctx verbs.Context) {
		s, err := perf.NewServer(ctx, ms.Manager(ctx), memservice.Config{})
		if err == nil {
			err = s.Serve()
		}
		if err != nil {
			r.Stop(fmt.Errorf("server: %w", err))
		}
	})
	var rules []fault.Rule
	if l.Loss > 0 {
		rule := fault.Rule{ID: "loss", Link: "cn0", Kind: fault.Loss, Dir: fault.Up, Probability: l.Loss}
		if l.BothWays {
			rule.Dir = fault.Both
		}
		rules = append(rules, rule)
	}
	if l.Late > 0 {
		half := time.Duration(l.Late) * recoveryPacket / 2
		rules = append(rules, fault.Rule{ID: "spray", Link: "ms0", Kind: fault.Delay, Dir: fault.Down, Delay: half, Jitter: half, Probability: 1})
	}
	for _, h := range r.Hosts() {
		h.SetFaults(rules)
	}
	var res perf.Result
	start(r, "cn0", "client", func(h *simrack.Host, ctx verbs.Context) error {
		cfg := perf.Config{
			Test: perf.WriteBW, Size: recoveryBytes, Iters: l.Messages, Depth: 64, To: "ms0", Hooks: perf.Hooks{Counters: cn.Counters},
			Path: perf.Path{MTU: recoveryMTU, Timeout: recoveryTimeout},
		}
		var err error
		res, err = perf.Run(ctx, h.Manager(ctx), ms.Addr(), cfg, nil)
		return err
	})
	if err := run(ctx, r); err != nil {
		return experiment.RecoveryResult{}, err
	}
	if res.BW == nil {
		return experiment.RecoveryResult{}, fmt.Errorf("the client has measured nothing")
	}
	packets := float64(l.Messages) * recoveryBytes / recoveryMTU
	full := float64(recoveryMTU) / recoveryPacket.Seconds() / (1 << 20) // MiB/s
	return experiment.RecoveryResult{
		Goodput:       res.BW.Average / full,
		Transmissions: 1 + float64(cn.Counters().RetransPkts)/packets,
		Twice:         float64(ms.Counters().DuplicateRequest) / packets,
		Timeouts:      cn.Counters().LocalAckTimeoutErr,
	}, nil
}
