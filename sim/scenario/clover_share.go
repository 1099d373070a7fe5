package scenario

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// runShared is storePlan.runMixed with clients of a host that share queue pairs.
func (p *storePlan) runShared(e *env, mixes string) error {
	p.draw(e)
	p.share(e.draw)
	p.blend(e, mixes, "wear", mixRules, mixServices)
	return (&storeRun{env: e, plan: p}).run()
}

// share makes the clients of a host share queue pairs, and draws so many clients that at least one
// host has several.
func (p *storePlan) share(d *draw) {
	p.shared = true
	p.clients = d.between(computeHosts+1, 3*computeHosts)
	p.rounds = d.between(10, 20) // few rounds: the time to find an order for the history grows with the number of concurrent clients
	p.after = min(p.after, p.clients*p.rounds/2)
	// A client whose lease has ended joins the shared connections under a new number. With this
	// timeout the connection managers repeat a lost message within a lease. With a longer one, the
	// client would lose its next lease as well.
	p.rack.CMTimeout = shortCMTimeout
}

// shortCMTimeout is the connection manager's code for a timeout of 4.2 ms. Leases in this scenario
// last 20 to 60 ms.
const shortCMTimeout = 10

// startProcesses runs the clients of each host as threads of one application, so that they can
// share queue pairs, a reporter or both, as the plan says.
func (r *storeRun) startProcesses() {
	for i := range min(computeHosts, r.plan.clients) {
		h := r.env.rack.Host(fmt.Sprintf("cn%d", i))
		var ids []int
		var draws []*draw
		for id := i; id < r.plan.clients; id += computeHosts {
			ids, draws = append(ids, id), append(draws, newDraw(r.env.draw.Uint64()))
		}
		r.env.client(h.Spec.Name, fmt.Sprintf("group-%d", i), func(ctx verbs.Context) error {
			p := &process{run: r, host: h, ctx: ctx}
			if err := p.start(draws[0], len(ids)); err != nil {
				return err
			}
			rt := ctx.Runtime()
			errs := make([]error, len(ids))
			for k, id := range ids {
				rt.Go(fmt.Sprintf("store-%d", id), func() {
					r.await(id, rt)
					c, err := p.open(draws[k], rt.Now().Add(20*storePatience))
					if err == nil {
						err = r.work(c, id, draws[k], rt)
					}
					errs[k] = err
				})
			}
			rt.Wait()
			return errors.Join(append(errs, p.close())...)
		})
	}
}

// process has the objects that the clients of one host share.
type process struct {
	run      *storeRun
	host     *simrack.Host
	ctx      verbs.Context
	group    *clover.Group    // nil means that each client has its own queue pairs
	reporter *clover.Reporter // nil means that each client reports its appends itself
}

// start makes the objects that the given number of clients share: the reporter and the group of
// queue pairs, each if the plan says so.
func (p *process) start(d *draw, clients int) (err error) {
	if p.run.plan.merged {
		p.reporter = clover.NewReporter(clover.Config{
			Context: p.ctx, Manager: p.host.Manager(p.ctx), Meta: p.run.env.addrOf("md0"), Params: p.run.plan.params,
		})
	}
	if p.run.plan.shared {
		cfg := p.run.config(p.host, p.ctx, d)
		cfg.Reporter = p.reporter
		p.group, err = clover.NewGroup(cfg, clients)
	}
	return err
}

func (p *process) open(d *draw, deadline clock.Time) (*clover.Client, error) {
	if p.group != nil {
		return p.group.Open(deadline)
	}
	cfg := p.run.config(p.host, p.ctx, d)
	cfg.Reporter = p.reporter
	return clover.Open(cfg, deadline)
}

// close ends the reporter and the group that the clients shared.
func (p *process) close() (err error) {
	if p.reporter != nil {
		err = p.reporter.Close()
	}
	if p.group != nil {
		err = errors.Join(err, p.group.Close())
	}
	return err
}
