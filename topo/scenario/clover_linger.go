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

// maxLinger bounds how long a client that has done its operations waits for the others.
const maxLinger = time.Minute

// calm reports whether only links fail. In such a run, no node is held under a number that a client
// had before a crash.
func (p *storePlan) calm() bool { return p.what == storeNothing && p.rack.Wrap == nil }

// linger keeps a client that has done its operations alive, in a calm run, until all clients have
// done theirs. Then each node that the metadata server counts as held must be held by a client;
// otherwise the node would be unusable as long as clients live. Meanwhile the clients only read,
// which renews their leases. A client that has waited for the longest time ends and gives back its
// nodes, and nothing is compared.
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

// explain compares the nodes that the metadata server counts as held with those that the clients
// hold. It does so when the clients' last reports have been sent, and the server has taken back the
// nodes that they held under earlier numbers.
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
