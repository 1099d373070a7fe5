package pdpm

import (
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// place is what the coordinator knows of a key.
type place struct {
	entry
	// now is which of the two copies has the value, version its number. alive: the key has a value.
	now     int
	version uint64
	alive   bool
	// used is the greatest version that was ever written to one of the copies, or may have been.
	used uint64
	// claimed: the key is in the memory of the server, too.
	claimed bool
	// busy: a request changes the key. waiting are the gates of those that wait for it, in order.
	busy    bool
	waiting []verbs.Gate
}

// copyAt is the address of a copy of the entry in the memory of its server.
func (p *place) copyAt(s *Shape, which int) uint64 {
	return p.at + lockLen + uint64(which)*uint64(s.copyLen())
}

// index is the coordinator's table of all keys. It is in no memory server: a new coordinator makes
// it again from the entries.
type index struct {
	rt    verbs.Runtime
	shape Shape

	mu   sync.Mutex // guards the fields below; no thread waits with it
	keys map[uint64]*place
	// end is the first entry of each server from which on no entry has a key. holes are entries
	// before it that have none.
	end   []uint64
	holes [][]uint64
}

func newIndex(rt verbs.Runtime, s Shape) *index {
	return &index{rt: rt, shape: s, keys: make(map[uint64]*place), end: make([]uint64, s.Servers), holes: make([][]uint64, s.Servers)}
}

// look returns what is known of a key now.
func (x *index) look(key uint64) (p place, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.keys[key]; p != nil {
		return *p, true
	}
	return p, false
}

// acquire gives the caller the right to change a key, until release. waited: another request had it
// before. p is nil if the key is not known, with claim: if its server has no free entry. The error is
// verbs.ErrTimeout.
func (x *index) acquire(key uint64, claim bool, deadline clock.Time) (p *place, waited bool, err error) {
	x.mu.Lock()
	p = x.keys[key]
	if p == nil && claim {
		p = x.add(key)
	}
	if p == nil || !p.busy {
		if p != nil {
			p.busy = true
		}
		x.mu.Unlock()
		return p, false, nil
	}
	g := x.rt.NewGate()
	p.waiting = append(p.waiting, g)
	x.mu.Unlock()
	if err := g.Wait(deadline); err != nil && x.leave(p, g) {
		return nil, true, err
	}
	return p, true, nil
}

// add gives a new key an entry; nil: there is none. The caller holds mu.
func (x *index) add(key uint64) *place {
	server, _ := x.shape.serverOf(key)
	n := x.end[server]
	switch last := len(x.holes[server]) - 1; {
	case last >= 0:
		n, x.holes[server] = x.holes[server][last], x.holes[server][:last]
	case n == uint64(x.shape.Entries):
		return nil
	default:
		x.end[server]++
	}
	p := &place{entry: entry{server, x.shape.entryAt(n)}}
	x.keys[key] = p
	return p
}

// leave ends the wait at a gate. It returns false if release has just given the key to this waiter.
func (x *index) leave(p *place, g verbs.Gate) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	for i, w := range p.waiting {
		if w == g {
			p.waiting = append(p.waiting[:i], p.waiting[i+1:]...)
			return true
		}
	}
	return false
}

// change does f, which changes what is known of a key that the caller has acquired.
func (x *index) change(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// release gives the key to the request that has waited longest.
func (x *index) release(p *place) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if len(p.waiting) == 0 {
		p.busy = false
		return
	}
	p.waiting[0].Open()
	p.waiting = p.waiting[1:]
}
