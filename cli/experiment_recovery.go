package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"

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
	twin := insim.RecoveryTwin{Rack: p.rack, Cost: model, From: p.hosts[0], To: p.to}
	if out, err = p.recover(ctx, &twin, &l); err != nil {
		return out, err
	}
	in, err := twin.Run(ctx, l)
	out.Twin = &in
	return out, err
}

// recover runs the load on the rack.
func (p *rackPlatform) recover(ctx context.Context, twin *insim.RecoveryTwin, l *experiment.Recovery) (out experiment.RecoveryResult, err error) {
	box := control.NewClient(rackfile.PathsOf(p.rack.Name).Socket(rackfile.SwitchName))
	var queues switchd.Queues
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/queues", nil, &queues); err != nil {
		return out, err
	}
	if queues.Rate == 0 {
		return out, errNoQueues
	}
	if l.Loss > 0 {
		rule := fault.Rule{ID: lossRule, Link: twin.From, Kind: fault.Loss, Dir: fault.Up, Probability: l.Loss}
		if err := ask(ctx, box, rackfile.SwitchName, http.MethodPost, "/faults", rule, nil); err != nil {
			return out, err
		}
		defer func() { // an interrupt does not end the request that ends the rule
			err = errors.Join(err, ask(context.WithoutCancel(ctx), box, rackfile.SwitchName, http.MethodDelete, "/faults/"+url.PathEscape(lossRule), nil, nil))
		}()
	}
	before, err := p.counted(ctx, twin.From, twin.To)
	if err != nil {
		return out, err
	}
	cfg := insim.RecoveryTest(l)
	cfg.To = twin.To
	res, err := p.bandwidth(ctx, twin.From, &cfg)
	if err != nil {
		return out, withNode(err, twin.From)
	}
	after, err := p.counted(ctx, twin.From, twin.To)
	if err != nil {
		return out, err
	}
	out = insim.RecoveryNumbers(l, res.BW.Average, twin.Packet(queues.Rate), after[0].since(before[0]), after[1].since(before[1]))
	h, _, _ := p.rack.Host(twin.From)
	out.Kind = h.RecoveryKind()
	return out, nil
}

// recoveryCounters are the counters of a NIC that RecoveryNumbers reads.
type recoveryCounters struct{ again, twice, timeouts uint64 }

func (c recoveryCounters) since(b recoveryCounters) metrics.NIC {
	return metrics.NIC{RetransPkts: c.again - b.again, DuplicateRequest: c.twice - b.twice, LocalAckTimeoutErr: c.timeouts - b.timeouts}
}

// counted reads the counters of two hosts.
func (p *rackPlatform) counted(ctx context.Context, hosts ...string) (list []recoveryCounters, err error) {
	for _, host := range hosts {
		client, err := hostControl(p.cmd, host)
		if err != nil {
			return nil, err
		}
		c, err := countersOver(ctx, client, 0)
		if err != nil {
			return nil, withNode(err, host)
		}
		m := counterMap(c).Counters
		list = append(list, recoveryCounters{m["roce_retrans_pkts"], m["duplicate_request"], m["local_ack_timeout_err"]})
	}
	return list, nil
}
