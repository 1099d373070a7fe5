package scenario

import (
	"slices"

	"github.com/rdmalab/rdmalab/store/kv"
)

// copyLosses describes the crashes in a run of a store whose nodes have copies on other servers.
type copyLosses struct {
	crashed   map[int]uint64 // by server: the generation of the server's copies at its last crash, as the metadata server counts generations
	metaDown  bool           // the metadata server has crashed, and has not opened the store again yet
	totalLoss bool           // the whole store is lost, and the history has ended: see noteTotalLoss
}

// lostWith returns the servers whose values are lost if victim loses its memory. In a store without
// copies, this is victim. In a store with copies, a server's values are lost when no copy of its
// nodes is whole any more. A copy is not whole if its server has crashed and the metadata server
// has not filled the copy since, or if the metadata server does not count it.
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
// is true if the server's copies are whole, and the metadata server counts them, or counted them
// when it crashed.
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
// copies; whether the restarted metadata server can know that they are old depends on what it has
// reached before (docs/guide/clover.md). What happens after that is not judged: noteTotalLoss ends
// the history, and the report of the run says so. If a memory server is out of the view although no
// fault has hit it, the metadata server has removed it wrongly, and the history goes on.
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
