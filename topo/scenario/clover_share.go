package scenario

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// runCloverShared is runClover for clients that share queue pairs.
func runCloverShared(e *env, mixes string) error {
	p := drawStore(e)
	p.share(e.draw)
	p.blend(e, mixes, "wear")
	return (&storeRun{env: e, plan: p}).run()
}

// share makes the clients of a host share queue pairs, and adds clients, so that each host has
// several.
func (p *storePlan) share(d *draw) {
	p.shared = true
	p.clients = d.between(storeHosts+1, 3*storeHosts)
	p.rounds = d.between(10, 20) // the time to find an order grows with the number of concurrent clients
	p.after = min(p.after, p.clients*p.rounds/2)
}

// startGroups runs the clients of each host as threads of one application.
func (r *storeRun) startGroups() {
	for i := range storeHosts {
		h := r.env.rack.Host(fmt.Sprintf("cn%d", i))
		var ids []int
		var draws []*draw
		for id := i; id < r.plan.clients; id += storeHosts {
			ids, draws = append(ids, id), append(draws, newDraw(r.env.draw.Uint64()))
		}
		r.env.client(h.Spec.Name, fmt.Sprintf("group-%d", i), func(ctx verbs.Context) error {
			rt := ctx.Runtime()
			g, err := clover.NewGroup(r.config(h, ctx, draws[0]), len(ids))
			if err != nil {
				return err
			}
			errs := make([]error, len(ids))
			for k, id := range ids {
				rt.Go(fmt.Sprintf("store-%d", id), func() {
					c, err := g.Open(rt.Now().Add(20 * storePatience))
					if err == nil {
						err = r.work(c, id, draws[k], rt)
					}
					errs[k] = err
				})
			}
			rt.Wait()
			return errors.Join(append(errs, g.Close())...)
		})
	}
}
