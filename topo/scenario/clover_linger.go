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

// calm reports whether nothing but links fails in the run. In such a run no client crashes, so the
// metadata server counts no nodes for clients that are dead.
func (p *storePlan) calm() bool { return p.what == storeNothing && p.rack.Wrap == nil }

// linger keeps a client that has done its operations alive until all clients have done theirs, if
// the run is calm. Then explain compares: each node that the metadata server counts as held must be
// held by a client, otherwise it would be unusable as long as clients live. Meanwhile the client
// reads, which renews its lease. If it has waited for the longest time, it ends and gives back its
// nodes, and no client compares anything.
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

// explain compares the number of nodes that the metadata server counts as held with those that the
// clients hold. after is the time since all clients have done their operations. The server's number
// may be too large until the clients' last reports have arrived and the server has taken back the
// nodes that clients held under earlier numbers. If the number is still too large after maxSettle,
// explain returns an error.
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
