package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/rpc"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// maxLinger bounds how long a client that has done its operations waits for the others.
const maxLinger = time.Minute

// calm reports whether only links fail in the run. In such a run no client crashes, so the metadata
// server counts no nodes for clients that are dead.
func (p *storePlan) calm() bool { return p.what == storeNothing && p.rack.Wrap == nil }

// linger keeps a client that has done its operations alive until all clients have done theirs, if
// the run is calm. Then explain compares: each node that the metadata server counts as held must be
// held by a client; a node that is counted without a holder would be unusable as long as clients
// live. While the client waits it reads, which renews its lease. A client that has waited for
// maxLinger (or r.most) sets explained: then all clients end and nothing is compared.
func (r *storeRun) linger(c *clover.Client, rt verbs.Runtime) error {
	if !r.plan.calm() {
		return nil
	}
	most := cmp.Or(r.most, maxLinger)
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
// nodes of expired leases: a client whose lease has ended goes on under a new client number. If the
// number is still too large after maxSettle, explain returns an error.
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

// copyLosses describes the crashes in a run of a store whose nodes have copies on other servers.
type copyLosses struct {
	crashed   map[int]uint64 // by server: the generation of the server's copies at its last crash, as the metadata server counts generations
	metaDown  bool           // the metadata server has crashed, and has not opened the store again yet
	totalLoss bool           // the whole store is lost, and the history has ended: see noteTotalLoss
}

// lostWith returns the servers whose values are lost if victim loses its memory. In a store without
// copies, this is victim. In a store with copies, a server's values are lost when no copy of its
// nodes is whole any more. The copies on a server are not whole if the server has crashed and the
// metadata server has not filled them since, or if the server is out of the view. lostWith also
// records in r.crashed that the victim crashes.
func (r *storeRun) lostWith(victim string) (lost kv.Places) {
	n := r.plan.servers
	if r.plan.replicas < 2 || r.server == nil {
		return placeOf(victim)
	}
	made, _ := r.server.Generations()
	for i := range n {
		if placeOf(victim) == 1<<i {
			r.crashed[i] = made[i]
		}
	}
	whole := r.whole()
	for of := range n {
		left := false
		for j := range r.plan.replicas {
			left = left || whole[(of+j)%n]
		}
		if !left {
			lost |= 1 << of
		}
	}
	return lost
}

// whole returns a list with an element for each memory server of a store with copies. The element
// is true if the copies on the server are whole (see lostWith). While the metadata server is down,
// the view is the last one that it had.
func (r *storeRun) whole() (list []bool) {
	made, counted := r.server.Generations()
	for i := range made {
		g, crashed := r.crashed[i]
		list = append(list, counted[i] != 0 && (!crashed || g != made[i]))
	}
	return list
}

// noteTotalLoss is called after a crash of a memory server or of the metadata server. If the
// metadata server is down and no memory server with whole copies is left, no process knows the
// store's last view, or which keys there were. A memory server that was out of the view has old
// copies. The restarted metadata server knows that they are old only if the superblock of that
// memory server says so (docs/guide/clover.md). What happens after the crash is not judged:
// noteTotalLoss ends the history, and the report of the run says so. If a memory server is out of
// the view although no fault has hit it, the metadata server has removed it wrongly, and the
// history goes on.
func (r *storeRun) noteTotalLoss() {
	if r.plan.replicas < 2 || !r.metaDown || r.server == nil || slices.Contains(r.whole(), true) {
		return
	}
	wrong := slices.ContainsFunc(memoryServers(r.plan.servers), func(ms string) bool {
		_, hit := r.down[ms]
		return !hit
	})
	if !wrong {
		r.totalLoss = true
		r.history.End()
	}
}

// placeOf returns the set that has only the memory server with this name, in the form in which a
// history records where values are.
func placeOf(server string) kv.Places { return 1 << (server[len(server)-1] - '0') }

// slack is how long after its deadline an operation may end: storeSlack, and the time for which
// hosts hang, because a client that hangs does not notice its deadline.
func (r *storeRun) slack() time.Duration {
	slack := storeSlack
	for _, s := range r.plan.faultList() {
		if s.what == storeHostHang {
			slack += s.down
		}
	}
	return slack
}

// maxSettle bounds the time in which the metadata server takes back the nodes that clients held
// when they ended. The server does this for one client after the other, and for each asks the
// memory servers to end the client's connections.
const maxSettle = 20 * time.Second

// settle removes the faults of links and waits until the metadata server has taken back the nodes
// that clients held when they ended.
func (r *storeRun) settle() (rpc.Stats, error) {
	rack := r.env.rack
	for _, h := range rack.Hosts() {
		h.SetFaults(nil)
	}
	most := rack.Now().Add(maxSettle)
	err := rack.Settle(4*r.plan.lease + time.Second)
	for err == nil && r.server.Snapshot().Clients > 0 && rack.Now() < most {
		err = rack.Settle(r.plan.lease)
	}
	return r.server.Snapshot(), err
}

// judge checks the run: the history must be linearizable, no operation may have taken too long or
// starved (see noteStarved), no chain may be broken, and no node may be lost.
func (r *storeRun) judge() error {
	r.env.note("%d operations, %d of them ended without an answer, %d without room, the longest took %v", r.history.Len(), r.unknown, r.full, r.longest)
	if r.totalLoss {
		r.env.note("the history is judged only until the metadata server and all memory servers with complete copies were lost")
	}
	if err := r.history.Check(kv.MostStates); err != nil {
		return err
	}
	st, err := r.settle()
	if err != nil {
		return err
	}
	r.env.note("metadata server: %+v", st)
	switch {
	case r.longest > storePatience+r.slack() || r.longest >= storePatience && r.plan.what == storeNothing || r.longest >= storePatience && r.plan.prompt():
		return fmt.Errorf("an operation with a deadline of %v took %v", storePatience, r.longest)
	case r.starved > 0:
		return fmt.Errorf("%d operations that began more than %v after a memory service had hung were not answered", r.starved, servicePatience)
	case st.Broken > 0:
		return fmt.Errorf("%d chains led to nodes that were no longer theirs", st.Broken)
	case st.Clients > 0 || st.Held > 0:
		return fmt.Errorf("%d clients and %d nodes held after all clients have gone", st.Clients, st.Held)
	case st.Linked > st.Keys:
		return fmt.Errorf("%d nodes linked for %d keys", st.Linked, st.Keys)
	}
	return nil
}
