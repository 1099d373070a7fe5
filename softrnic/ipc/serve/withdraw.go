package serve

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// withdrawal is the search for the completions of a target of XRC in a ring of a program. Of other queue
// pairs, the program that resets them finds their completions itself; those of a target may be in the rings of
// several programs.
type withdrawal struct {
	port     *port
	cq       *programCQ
	begun    bool
	rings    uint32 // programCQ.rings when the search began
	next     uint32 // index of the next entry
	entries  int    // how many entries are left
	qpn      uint32
	finished bool
}

// maxWithdrawn bounds the entries that a step of a search looks at, because the NIC is locked meanwhile.
const maxWithdrawn = 1 << 12

// withdraw removes the completions of a target that was reset from the rings of all programs. No completion of
// it comes meanwhile, because the caller keeps it in RESET. The queues of the NIC have no completion of it.
func (s *pump) withdraw(n wire.QPN) {
	var all []withdrawal
	s.with(func(*engine.Engine) {
		for _, p := range s.ports {
			for _, m := range p.cqs {
				if c, ok := m.(*programCQ); ok && c.xrc {
					all = append(all, withdrawal{port: p, cq: c, qpn: uint32(n)})
				}
			}
		}
	})
	for i := range all {
		for w := &all[i]; !w.finished; {
			s.with(func(*engine.Engine) { w.step(s.ports) })
		}
	}
}

// step looks at some entries. ports are those of the programs that have not ended.
func (w *withdrawal) step(ports []*port) {
	c := w.cq
	if !slices.Contains(ports, w.port) || !slices.Contains(w.port.cqs, mover(c)) {
		w.finished = true // the memory of the ring has gone
		return
	}
	if !w.begun || w.rings != c.rings { // the entries have other places now
		w.begun, w.rings, w.next = true, c.rings, c.ring.Consumer()
		w.entries = c.ring.Between(w.next, c.tail)
	}
	for range min(w.entries, maxWithdrawn) {
		uverbs.WithdrawWC(c.ring.Slot(w.next), w.qpn)
		w.next++
		w.entries--
	}
	w.finished = w.entries == 0
}
