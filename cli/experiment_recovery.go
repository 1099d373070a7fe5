package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// lossRack is the rack file for Recovery, lossRule the fault that it injects.
const lossRack, lossRule = "topo/racks/loss-slow.yaml", "loss-recovery"

// Recovery runs one queue pair on the rack, whose packets are lost, and then in the simulator with the rack's file.
func (p *rackPlatform) Recovery(ctx context.Context, l experiment.Recovery) (out experiment.RecoveryResult, err error) {
	if p.rack.Slow == 0 {
		return out, fmt.Errorf("rack %s is not in slow motion, and would measure the speed of this machine: bring up %s", p.rack.Name, lossRack)
	}
	if err := errors.Join(p.noStores(), p.box.set(ctx, &experiment.Switch{}, nil, "")); err != nil {
		return out, err
	}
	model, err := costs.Builtin(p.rack.Cost)
	if err != nil {
		return out, err
	}
	r := &rackLoss{on: p, twin: insim.RecoveryTwin{Rack: p.rack, Cost: model, From: p.hosts[0], To: p.to}}
	if out, err = r.run(ctx, &l); err != nil {
		return out, err
	}
	in, err := r.twin.Run(ctx, l)
	out.Twin = &in
	return out, err
}

// rackLoss is one queue pair on a rack in slow motion, and its twin in the simulator.
type rackLoss struct {
	on   *rackPlatform
	twin insim.RecoveryTwin
}

// run runs the load on the rack.
func (r *rackLoss) run(ctx context.Context, l *experiment.Recovery) (out experiment.RecoveryResult, err error) {
	twin := &r.twin
	box := control.NewClient(rackfile.PathsOf(r.on.rack.Name).Socket(rackfile.SwitchName))
	var queues switchd.Queues
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/queues", nil, &queues); err != nil {
		return out, err
	}
	if queues.Rate == 0 {
		return out, errNoQueues
	}
	r.on.box.protect() // a closed terminal does not leave the rule behind
	whole := context.WithoutCancel(ctx)
	if err := r.endLoss(whole, box); err != nil { // that of a command that was killed
		return out, err
	}
	if l.Loss > 0 {
		defer func() { err = errors.Join(err, r.endLoss(whole, box)) }()
		rule := insim.LossOf(l, twin.From)
		rule.ID = lossRule
		if err := ask(whole, box, rackfile.SwitchName, http.MethodPost, "/faults", rule, nil); err != nil {
			return out, err
		}
	}
	before, err := r.counted(ctx)
	if err != nil {
		return out, err
	}
	cfg := insim.RecoveryTest(l)
	cfg.To = twin.To
	res, err := r.on.bandwidth(ctx, twin.From, &cfg)
	if err != nil {
		return out, withNode(err, twin.From)
	}
	after, err := r.counted(ctx)
	if err != nil {
		return out, err
	}
	out = insim.RecoveryNumbers(l, res.BW.Average, twin.Packet(queues.Rate), after[0].since(before[0]), after[1].since(before[1]))
	h, _, _ := r.on.rack.Host(twin.From)
	out.Kind = h.RecoveryKind()
	return out, nil
}

// endLoss removes the fault rule of the experiment if the switch has it.
func (r *rackLoss) endLoss(ctx context.Context, box *control.Client) error {
	var list []fault.Status
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/faults", nil, &list); err != nil {
		return err
	}
	if !slices.ContainsFunc(list, func(f fault.Status) bool { return f.ID == lossRule }) {
		return nil
	}
	return ask(ctx, box, rackfile.SwitchName, http.MethodDelete, "/faults/"+url.PathEscape(lossRule), nil, nil)
}

// recoveryCounters are the counters of a NIC that RecoveryNumbers reads.
type recoveryCounters struct{ again, twice, timeouts uint64 }

func (c recoveryCounters) since(b recoveryCounters) metrics.NIC {
	return metrics.NIC{RetransPkts: c.again - b.again, DuplicateRequest: c.twice - b.twice, LocalAckTimeoutErr: c.timeouts - b.timeouts}
}

// counted reads the counters of client and server.
func (r *rackLoss) counted(ctx context.Context) (list [2]recoveryCounters, err error) {
	for i, host := range []string{r.twin.From, r.twin.To} {
		client, err := hostControl(r.on.cmd, host)
		if err != nil {
			return list, err
		}
		c, err := countersOver(ctx, client, 0)
		if err != nil {
			return list, withNode(err, host)
		}
		m := counterMap(c).Counters
		list[i] = recoveryCounters{m["roce_retrans_pkts"], m["duplicate_request"], m["local_ack_timeout_err"]}
	}
	return list, nil
}
