package scenario

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// operate is called after each burst of frames, and changes entries as the control plane does. The
// switch may refuse a change because it has no room or no connection.
func (r *lookupRun) operate(d *draw) {
	if r.down || r.plan.mode == modePublished {
		return
	}
	if r.plan.changes == changesControl {
		r.changeFlow(d)
	}
	if r.plan.churn > 0 { // changes an entry of a flow that sends nothing
		if _, _, err := r.change([]string{r.oracle.other(d.IntN(r.plan.churn))}, d.chance(0.5)); err != nil {
			r.oracle.fail(err)
		}
	}
}

// changeFlow changes the entry of a flow that sends. If no other change is incomplete, the oracle
// first reads the table in the servers' memory. In a run in which the switch crashes, the oracle
// does not read, because a WRITE of the switch's earlier incarnation may still be in flight.
func (r *lookupRun) changeFlow(d *draw) {
	_, waiting, err := r.change(nil, false)
	if err != nil {
		r.oracle.fail(err)
		return
	}
	if waiting == 0 && r.plan.fault != stateSwitchCrash {
		r.oracle.readTable()
		r.quiet++
	}
	flow, kind := d.IntN(r.plan.flows), d.IntN(lookupKinds)
	taken, _, err := r.change([]string{r.oracle.key(flow) + " " + r.oracle.action(flow, kind)}, kind == kindNone)
	if err != nil {
		r.oracle.fail(err)
	}
	if taken > 0 {
		f := &r.oracle.flows[flow]
		f.kinds = append(f.kinds, kind)
		r.changed++
	}
}

// otherWriter changes the plan so that a client, and not the switch, changes entries in the memory
// of ms1.
func (p *lookupPlan) otherWriter() {
	p.changes, p.churn, p.cache = changesWriter, 0, 0 // no cache: the switch would not notice that another writer changes an entry
	p.rules = append(p.rules, fault.Rule{Link: "ms1", Kind: fault.Tear, Probability: 1, Delay: 20 * time.Microsecond})
}

// startWriter starts a client that rewrites entries in the memory of ms1: an entry that drops
// frames becomes one that sets a DSCP in them, and the other way round. Each rewrite also changes
// the version, which stands at both ends of a slot.
func (r *lookupRun) startWriter(d *draw) {
	r.env.client("cn2", "writer", func(ctx verbs.Context) error {
		rt := ctx.Runtime()
		end, err := newEnds(ctx, 64, 1, verbs.LocalWrite)
		if err != nil {
			return err
		}
		mem, err := memservice.Dial(r.env.rack.Host("cn2").Manager(ctx), end.qp, r.env.addrOf("ms1"), r.plan.params, rt.Now().Add(dialPatience))
		if err != nil {
			if r.plan.fault != stateCalm {
				return nil // the memory server may be down
			}
			return fmt.Errorf("the other writer: %w", err)
		}
		for r.sent < r.plan.frames {
			if ok, err := r.rewrite(d, end, mem); !ok {
				return err
			}
			rt.Sleep(d.span(0, 30*time.Microsecond))
		}
		return nil
	})
}

// rewrite WRITEs a changed entry of a random flow to the server. It returns false if the writer
// must end.
func (r *lookupRun) rewrite(d *draw, end *ends, mem memservice.Region) (bool, error) {
	flow := d.IntN(r.plan.flows)
	s, ok := r.oracle.slots()[flow]
	if !ok || s.server != 1 {
		return true, nil
	}
	b := end.buf[:64]
	copy(b, s.bytes)
	kind := kindDrop
	switch lookupKindOf[b[2]] {
	case kindDrop:
		kind, b[2], b[58] = kindMark, 2, lookupMark(flow)
	case kindMark:
		b[2], b[58] = 1, 0
	default:
		return true, nil
	}
	b[0]++
	b[63] = b[0]
	f := &r.oracle.flows[flow]
	f.change(kind)
	r.changed++
	wc, err := end.do(verbs.SendWR{
		Op: verbs.OpWrite, RKey: mem.RKey, RemoteAddr: mem.Addr + uint64(s.offset), SGL: []verbs.SGE{end.mr.SGE(0, len(b))},
	})
	if err != nil || wc.Status != verbs.Success {
		return false, err
	}
	f.known = len(f.kinds) - 1
	return true, nil
}
