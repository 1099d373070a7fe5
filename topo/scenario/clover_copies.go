package scenario

import "github.com/rdmalab/rdmalab/store/kv"

// lostWith returns the servers whose values are lost if victim loses its memory. In a store without
// copies, this is victim. In a store with copies, a server's values are lost when no copy of its
// nodes is whole any more. A copy is not whole if its server has crashed and the metadata server
// has not filled the copy since, or if the metadata server does not count it.
func (r *storeRun) lostWith(victim string) (lost kv.Places) {
	n := r.plan.servers
	if r.plan.replicas < 2 || r.server == nil {
		return placeOf(victim)
	}
	if r.crashed == nil {
		r.crashed = make(map[int]uint64)
	}
	made, whole := r.server.Generations()
	for i := range n {
		if placeOf(victim) == 1<<i {
			r.crashed[i], whole[i] = made[i], 0
		}
		if g, ok := r.crashed[i]; ok && g == made[i] {
			whole[i] = 0
		}
	}
	for of := range n {
		left := false
		for j := range r.plan.replicas {
			left = left || whole[(of+j)%n] != 0
		}
		if !left {
			lost |= 1 << of
		}
	}
	return lost
}
