package chains

import (
	"fmt"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Client connects one client to the server, waits until all clients have connected (Config.Ready),
// and makes the client's requests. It returns when they have ended.
func (r *Run) Client(m Machine) error {
	if r.Load.Kind == experiment.ChainRate {
		return r.ring(m)
	}
	ends := make([]*endpoint, 1)
	n := r.rounds()
	if r.Load.Way == experiment.WayBreak {
		ends = make([]*endpoint, n)
	}
	for i := range ends {
		var err error
		if ends[i], err = r.dial(m); err != nil {
			return err
		}
	}
	rt := m.Context.Runtime()
	if err := r.Ready(rt); err != nil {
		return err
	}
	if r.Load.Kind == experiment.ChainVerb {
		return r.verb(ends[0])
	}
	if r.Load.Depth > 1 {
		return r.stream(ends[0])
	}
	for i := range n {
		if r.stopped() {
			return verbs.ErrClosed
		}
		e := ends[i%len(ends)]
		place := r.place(i)
		begin := rt.Now()
		end, err := r.get(e, place)
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		r.note(end.Sub(begin))
	}
	return nil
}

// place returns the number of the bucket or list node that has the key of request i. In a list, the
// first Load.N nodes take turns, because the prime 7919 has no factor in common with N.
func (r *Run) place(i int) int {
	if r.Load.Kind == experiment.ChainList {
		return i * 7919 % max(1, r.Load.N)
	}
	return i % keysOf
}

// request returns the bytes that the client sends for the key at a place. The server's process gets
// the number of the place. A program on the server's NIC gets the fields (key, address of the
// bucket or list) that its receives write into its work requests.
func (r *Run) request(e *endpoint, place int) []byte {
	if t := r.data.table; t != nil && r.Load.Way != experiment.WayPolling && r.Load.Way != experiment.WayEvents {
		return t.request(place, e.base)
	}
	at := func(i int) uint64 { return e.base + uint64(i%keysOf*stride) }
	key := keyAt(place)
	switch r.Load.Way {
	case experiment.WayPolling, experiment.WayEvents:
		return append([]byte{byte(place)}, make([]byte, redn.ProbeLen-1)...)
	}
	if r.Load.Kind == experiment.ChainList {
		return redn.AppendWalk(nil, key, e.base)
	}
	return redn.AppendProbe(nil, key, at(place))
}

// get gets the value of the key at a place. end is the time at which the client had the value.
func (r *Run) get(e *endpoint, place int) (end clock.Time, err error) {
	switch r.Load.Way {
	case experiment.WayIdeal, experiment.WayReads:
		err = r.reads(e, place)
	default:
		return r.ask(e, place)
	}
	if err == nil && e.buf[0] != byte(place+1) {
		err = fmt.Errorf("the value begins with %d, not %d", e.buf[0], place+1)
	}
	return e.rt.Now(), err
}

// reads gets the value at a place by READs alone. With WayReads it first READs where the key may
// be: the neighbouring buckets of a table, or each node of a list up to the place. After each READ
// it sleeps for Trip, the time of the client's program.
func (r *Run) reads(e *endpoint, place int) error {
	if r.Load.Way == experiment.WayReads {
		first, n := place, neighbours
		if r.Load.Kind == experiment.ChainList {
			first, n = 0, redn.NodeLen
		}
		for i := first; i <= place; i++ {
			off := i * stride
			if r.data.table != nil {
				off = r.data.table.bucketAt(place)
			}
			if err := e.read(off, n); err != nil {
				return err
			}
			e.rt.Sleep(r.Load.Trip)
		}
	}
	err := e.read(r.data.valueAt(place), r.data.value)
	e.rt.Sleep(r.Load.Trip)
	return err
}

// ask gets the value at a place by a request to the server's NIC or process. end is the time at
// which the client had the value.
func (r *Run) ask(e *endpoint, place int) (end clock.Time, err error) {
	if err := e.receive(4); err != nil {
		return 0, err
	}
	if err := e.send(0, r.request(e, place)); err != nil {
		return 0, err
	}
	// A program that looks up in a table, or walks all nodes of a list, ends a request with one
	// more answer, redn.Miss. The client sends its next request after this answer.
	last := r.Load.Kind == experiment.ChainLookup && r.Load.Way != experiment.WayPolling && r.Load.Way != experiment.WayEvents || r.Load.Way == experiment.WayNIC
	for sent, ends := 0, 0; sent == 0 || end == 0 || last && ends == 0; {
		s, hits, over, err := e.await()
		if err != nil {
			return 0, err
		}
		if hits > 0 {
			end = e.rt.Now().Add(r.Completion + r.Load.Trip)
		}
		sent, ends = sent+s, ends+over
	}
	if now := e.rt.Now(); now < end {
		e.rt.Sleep(end.Sub(now))
	}
	if got := e.buf[sendLen]; got != byte(place+1) {
		return 0, fmt.Errorf("the value begins with %d, not %d", got, place+1)
	}
	return end, nil
}

// stream keeps Depth requests in flight. It measures the rate of the requests that end in the
// middle half of the run, and adds it to the rate of all clients.
func (r *Run) stream(e *endpoint) error {
	n := r.rounds()
	var first, last clock.Time // when the first and the last counted request ended
	counted := 0
	for asked, sent, ended := 0, 0, 0; ended < n || sent < n; {
		if r.stopped() {
			return verbs.ErrClosed
		}
		for ; asked < n && asked-min(sent, ended) < r.Load.Depth; asked++ {
			if err := e.receive(2 * r.Load.Depth); err != nil {
				return err
			}
			if err := e.send(asked%r.Load.Depth, r.request(e, r.place(asked))); err != nil {
				return err
			}
		}
		s, _, ends, err := e.await()
		if err != nil {
			return err
		}
		sent, ended = sent+s, ended+ends
		if now := e.rt.Now(); ended > n/4 && ended <= n*3/4 && ends > 0 {
			if last = now; first == 0 {
				first = now
			} else {
				counted += ends
			}
		}
	}
	if last > first {
		r.mu.Lock()
		defer r.mu.Unlock()
		r.out.Rate += float64(counted) / last.Sub(first).Seconds() // each client has its own time span, because clients do not begin and end at the same time
	}
	return nil
}
