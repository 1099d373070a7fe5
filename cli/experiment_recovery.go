package cli

import (
	"context"
	"errors"
	"net/http"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/experiment/insim"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// lossRack is the rack file for Recovery, lossRule the fault that it injects.
const lossRack, lossRule = "topo/racks/loss-slow.yaml", "loss-recovery"

// Recovery runs one queue pair on the rack, whose packets are lost, and then in the simulator with the rack's file.
func (p *rackPlatform) Recovery(ctx context.Context, l experiment.Recovery) (out experiment.RecoveryResult, err error) {
	model, err := slowRack{p, lossRack}.ready(ctx)
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
	box := boxOf(r.on.rack.Name)
	var queues switchd.Queues
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/queues", nil, &queues); err != nil {
		return out, err
	}
	if queues.Rate == 0 {
		return out, errNoQueues
	}
	r.on.box.protect() // a closed terminal does not leave the rule behind
	whole := context.WithoutCancel(ctx)
	if err := endFaults(whole, box, lossRule); err != nil { // that of a command that was killed
		return out, err
	}
	if l.Loss > 0 {
		defer func() { err = errors.Join(err, endFaults(whole, box, lossRule)) }()
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
	grown := func(i int, name string) uint64 { return after[i][name] - before[i][name] }
	client := metrics.NIC{RetransPkts: grown(0, "roce_retrans_pkts"), LocalAckTimeoutErr: grown(0, "local_ack_timeout_err")}
	server := metrics.NIC{DuplicateRequest: grown(1, "duplicate_request")}
	out = insim.RecoveryNumbers(l, res.BW.Average, twin.Packet(queues.Rate), client, server)
	h, _, _ := r.on.rack.Host(twin.From)
	out.Kind = h.RecoveryKind()
	return out, nil
}

// counted reads the counters of client and server.
func (r *rackLoss) counted(ctx context.Context) (list [2]map[string]uint64, err error) {
	for i, host := range []string{r.twin.From, r.twin.To} {
		if list[i], err = countersOf(ctx, r.on.cmd, host); err != nil {
			return list, err
		}
	}
	return list, nil
}
