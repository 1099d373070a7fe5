package insim

import (
	"fmt"

	"github.com/rdmalab/rdmalab/redn"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/experiment"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// client runs the requests of a client.
func (r *chainRun) client(h *simrack.Host, ctx verbs.Context) error {
	ends := make([]*chainEnd, 1)
	n := r.rounds()
	if r.load.Way == experiment.WayBreak {
		ends = make([]*chainEnd, n)
	}
	for i := range ends {
		var err error
		if ends[i], err = r.dial(h, ctx); err != nil {
			return err
		}
	}
	rt := ctx.Runtime()
	if rt.Now() >= chainSetUp {
		return fmt.Errorf("a client was ready at %v, after %v", rt.Now(), chainSetUp)
	}
	rt.Sleep(chainSetUp.Sub(rt.Now()))
	if r.load.Kind == experiment.ChainVerb {
		return r.verb(ends[0])
	}
	if r.load.Depth > 1 {
		return r.stream(ends[0])
	}
	for i := range n {
		e := ends[i%len(ends)]
		place := r.place(i)
		begin := rt.Now()
		end, err := r.get(e, place)
		if err != nil {
			return fmt.Errorf("request %d: %w", i, err)
		}
		r.took = append(r.took, end.Sub(begin))
	}
	return nil
}

// place returns where the key of request i is.
func (r *chainRun) place(i int) int {
	if r.load.Kind == experiment.ChainList {
		return i * 7919 % max(1, r.load.N)
	}
	return i % chainKeys
}

// request returns the bytes of a request for the key at a place.
func (r *chainRun) request(e *chainEnd, place int) []byte {
	at := func(i int) uint64 { return e.base + uint64(i%chainKeys*chainStride) }
	key := chainKey(place)
	switch r.load.Way {
	case experiment.WayPolling, experiment.WayEvents:
		return append([]byte{byte(place)}, make([]byte, redn.ProbeLen-1)...)
	case experiment.WaySequential, experiment.WayParallel:
		return redn.AppendProbe(redn.AppendProbe(nil, key, at(place+1)), key, at(place))
	case experiment.WayRecycled:
		if r.load.Kind == experiment.ChainLookup {
			return redn.AppendProbe(nil, key, at(place)+chainSlot)
		}
	}
	if r.load.Kind == experiment.ChainList {
		return redn.AppendWalk(nil, key, e.base)
	}
	return redn.AppendProbe(nil, key, at(place))
}

// get gets the value of the key at a place, and returns when the client had it.
func (r *chainRun) get(e *chainEnd, place int) (end clock.Time, err error) {
	switch r.load.Way {
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

// reads gets a value by READs.
func (r *chainRun) reads(e *chainEnd, place int) error {
	if r.load.Way == experiment.WayReads {
		first, n := place, chainNeighbours
		if r.load.Kind == experiment.ChainList {
			first, n = 0, redn.NodeLen
		}
		for i := first; i <= place; i++ {
			if err := e.read(i*chainStride, n); err != nil {
				return err
			}
			e.rt.Sleep(r.load.Trip)
		}
	}
	err := e.read(r.data.valueAt(place), r.data.value)
	e.rt.Sleep(r.load.Trip)
	return err
}

// ask gets a value by a request to the server's NIC or process.
func (r *chainRun) ask(e *chainEnd, place int) (end clock.Time, err error) {
	if err := e.receive(4); err != nil {
		return 0, err
	}
	if err := e.send(0, r.request(e, place)); err != nil {
		return 0, err
	}
	// The programs for a table, and walks of all nodes, say at last that there is nothing more.
	last := r.load.Kind == experiment.ChainLookup && r.load.Way != experiment.WayPolling && r.load.Way != experiment.WayEvents || r.load.Way == experiment.WayNIC
	for sent, ends := 0, 0; sent == 0 || end == 0 || last && ends == 0; {
		s, hits, over, err := e.await()
		if err != nil {
			return 0, err
		}
		if hits > 0 {
			end = e.rt.Now().Add(r.model.NIC.Completion + r.load.Trip)
		}
		sent, ends = sent+s, ends+over
	}
	if now := e.rt.Now(); now < end {
		e.rt.Sleep(end.Sub(now))
	}
	if got := e.buf[chainSend]; got != byte(place+1) {
		return 0, fmt.Errorf("the value begins with %d, not %d", got, place+1)
	}
	return end, nil
}

// stream keeps Depth requests in flight and counts those that end.
func (r *chainRun) stream(e *chainEnd) error {
	n := r.rounds()
	for asked, sent, ended := 0, 0, 0; ended < n || sent < n; {
		for ; asked < n && asked-min(sent, ended) < r.load.Depth; asked++ {
			if err := e.receive(2 * r.load.Depth); err != nil {
				return err
			}
			if err := e.send(asked%r.load.Depth, r.request(e, r.place(asked))); err != nil {
				return err
			}
		}
		s, _, ends, err := e.await()
		if err != nil {
			return err
		}
		sent, ended = sent+s, ended+ends
		if now := e.rt.Now(); ended > n/4 && ended <= n*3/4 && ends > 0 {
			if r.counted == 0 {
				r.first, r.counted = now, 1
			} else {
				r.last, r.counted = now, r.counted+ends
			}
		}
	}
	return nil
}
