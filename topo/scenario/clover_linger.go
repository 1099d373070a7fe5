package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// maxLinger bounds the time in which a client that has made its operations waits for the others.
const maxLinger = time.Minute

// calm reports whether nothing fails but links: no machine's nodes are held by an earlier number of it.
func (p *storePlan) calm() bool { return p.what == storeNothing && p.rack.Wrap == nil }

// linger keeps a client that has made its operations alive, in a calm run, until all have made theirs.
// Then the metadata server must count no node as held that no client has: such a node would be out of
// use as long as a client lives. The clients only read meanwhile, so that their leases go on. A client
// that has waited for the most goes, and nothing is compared: what it had is given back then.
func (r *storeRun) linger(c *clover.Client, rt verbs.Runtime) error {
	if !r.plan.calm() {
		return nil
	}
	most := r.most
	if most == 0 {
		most = maxLinger
	}
	r.living = append(r.living, c)
	began, all := rt.Now(), clock.Time(0)
	for ; !r.explained; rt.Sleep(r.plan.lease / 8) {
		now := rt.Now()
		if _, err := c.Get(r.plan.first, nil, now.Add(storePatience)); errors.Is(err, kv.ErrClosed) || errors.Is(err, verbs.ErrClosed) {
			return err
		}
		if len(r.living) < r.plan.clients {
			if now > began.Add(most) {
				r.explained = true
				r.env.note("nodes held are not compared: %d of %d clients had made their operations after %v", len(r.living), r.plan.clients, most)
			}
			continue
		}
		if all == 0 {
			all = now
		}
		if err := r.explain(now.Sub(all)); err != nil {
			return err
		}
	}
	return nil
}

// explain compares what the metadata server counts as held with what the clients have, when their last
// reports have left, and the metadata server has taken back what earlier numbers of them had.
func (r *storeRun) explain(after time.Duration) error {
	have := 0
	for _, c := range r.living {
		have += c.Keeps()
	}
	st := r.server.Snapshot()
	switch {
	case after < r.plan.lease:
	case int(st.Clients) == len(r.living) && int(st.Held) <= have:
		r.explained = true
	case after > maxSettle:
		r.explained = true
		return fmt.Errorf("%d clients live and have %d nodes; the metadata server counts %d nodes held by %d clients", len(r.living), have, st.Held, st.Clients)
	}
	return nil
}
