package pdpm

import (
	"slices"
	"sync"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/passive"
)

// place is the entry of a key in the coordinator's index.
type place struct {
	entry
	// now is the copy that has the value, 0 or 1. version is the version of that copy. alive is
	// true if the key has a value.
	now     int
	version uint64
	alive   bool
	// used is the greatest version that was written to one of the copies, or may have been.
	used uint64
	// claimed is true if the entry in the server's memory has the key. sent is true if the WRITE of
	// the key was sent, so the entry may have it.
	claimed, sent bool
	key           uint64
	// busy is true while a request changes the key. waiting has the gates of the requests that wait
	// until it is their turn to change the key, in order.
	busy    bool
	waiting []verbs.Gate
}

// copyAt returns the offset of a copy of the entry in the memory of its server.
func (p *place) copyAt(s *Shape, which int) uint64 {
	return p.at + lockLen + uint64(which)*uint64(s.copyLen())
}

// index is the coordinator's table of all keys. It is in no memory server: a new coordinator makes
// it again from the entries.
type index struct {
	rt    verbs.Runtime
	shape Shape

	mu   sync.Mutex // guards the fields below; no thread waits while it holds mu
	keys map[uint64]*place
	// end has, for each server, the number of the first entry after all entries with keys. holes
	// has, for each server, the numbers of the entries before end that have no key.
	end   []uint64
	holes [][]uint64
}

func newIndex(rt verbs.Runtime, s Shape, servers int) *index {
	return &index{rt: rt, shape: s, keys: make(map[uint64]*place), end: make([]uint64, servers), holes: make([][]uint64, servers)}
}

// look returns a copy of what the index has about a key. known is false if the index does not have
// the key.
func (x *index) look(key uint64) (p place, known bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.keys[key]; p != nil {
		return *p, true
	}
	return p, false
}

// acquire gives the caller the right to change a key, until release. waited is true if it had to
// wait for another request that changed the key. If the key is unknown, claim makes acquire add it.
// p is nil if the key is unknown and claim is false, or if the server has no free entry. The only
// error is verbs.ErrTimeout.
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

// add gives a new key an entry. It returns nil if the server has no free entry. The caller holds
// mu.
func (x *index) add(key uint64) *place {
	server, _ := passive.PlaceOf(key, len(x.end))
	n := x.end[server]
	switch last := len(x.holes[server]) - 1; {
	case last >= 0:
		n, x.holes[server] = x.holes[server][last], x.holes[server][:last]
	case n == uint64(x.shape.Entries):
		return nil
	default:
		x.end[server]++
	}
	p := &place{entry: entry{server, x.shape.entryAt(n)}, key: key}
	x.keys[key] = p
	return p
}

// leave ends the wait at a gate. It returns false if release has just given the key to this waiter.
func (x *index) leave(p *place, g verbs.Gate) bool {
	x.mu.Lock()
	defer x.mu.Unlock()
	n := len(p.waiting)
	p.waiting = slices.DeleteFunc(p.waiting, func(w verbs.Gate) bool { return w == g })
	return len(p.waiting) < n
}

// change calls f with mu held. f changes what the index has about a key that the caller has
// acquired.
func (x *index) change(f func()) {
	x.mu.Lock()
	defer x.mu.Unlock()
	f()
}

// release gives the key to the request that has waited longest. If no request waits, a new key that
// was not sent to the server loses its entry again.
func (x *index) release(p *place) {
	x.mu.Lock()
	defer x.mu.Unlock()
	switch {
	case len(p.waiting) > 0:
		p.waiting[0].Open()
		p.waiting = p.waiting[1:]
	case p.claimed || p.sent:
		p.busy = false
	default:
		delete(x.keys, p.key)
		x.holes[p.server] = append(x.holes[p.server], x.shape.entryOf(p.at))
	}
}
