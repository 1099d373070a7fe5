package simnet

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Shards is a network whose nodes are divided into shards, so that several processors can run them. Each
// shard is a Net with the events, timers and threads of its nodes. Frames between shards take at least
// Lookahead on their links, so all shards can run for that long without waiting for each other (a window);
// then they exchange what they have sent. The result does not depend on the number of workers, but it may
// differ from that of the undivided network in the order of events at one instant.
type Shards struct {
	whole     *Net
	parts     []*Net
	lookahead time.Duration
	windows   uint64
	// Eager wakes the workers for each window, however few events it has.
	Eager  bool
	joined bool
}

// Workers run the shards of a window; see package workers.
type Workers interface {
	// Each calls f for 0 to jobs-1, in any order, and returns when all calls have.
	Each(jobs int, f func(i int))
	// Err returns an error that is to end the run.
	Err() error
}

// crossing is a frame on its way to another shard.
type crossing struct {
	to    *half
	at    clock.Time
	frame inFlight
}

// Split divides the network. of has the shard of each node, from 0; a node's threads (Proc.Place) are in
// its shard. Until Join, only the shards may be used: each by one goroutine at a time, and only through
// calls that its own nodes and threads make. The network must not be running, and have no Trace.
func (n *Net) Split(of []int) (*Shards, error) {
	switch {
	case len(of) != len(n.nodes):
		return nil, fmt.Errorf("sim: %d nodes, and shards for %d", len(n.nodes), len(of))
	case n.cfg.Trace != nil:
		return nil, errors.New("sim: a network with a trace cannot be divided")
	case n.current != nil || n.busy:
		return nil, errors.New("sim: a running network cannot be divided")
	case slices.ContainsFunc(n.heap.keys, func(k eventKey) bool { return n.heap.slots[k.slot].call != nil }):
		return nil, errors.New("sim: a call is scheduled (At), which belongs to no shard")
	}
	s := &Shards{whole: n, parts: make([]*Net, slices.Max(of)+1), lookahead: time.Hour}
	for i := range s.parts {
		cfg := n.cfg
		cfg.Cancelled = nil // Run asks
		s.parts[i] = &Net{cfg: cfg, now: n.now, nodes: n.nodes, links: n.links, part: part{number: i, of: of}}
	}
	for _, l := range n.links {
		if of[l.up.src] != of[l.down.src] {
			s.lookahead = min(s.lookahead, l.up.cfg.Delay)
		}
	}
	if s.lookahead <= 0 {
		return nil, errors.New("sim: a link between shards has no delay")
	}
	for range len(n.heap.keys) {
		e := n.heap.pop()
		s.parts[of[e.node()]].heap.push(e)
	}
	for i := range n.nodes {
		n.ticks.Remove(uint32(i))
		s.parts[of[i]].ticks.Set(uint32(i), n.nodes[i].keyed)
	}
	for _, p := range n.procs {
		if p.state != procDone {
			n.wakes.Remove(p.id)
			p.moveTo(s.parts[of[p.node]])
		}
	}
	for _, p := range n.ready {
		p.net.ready = append(p.net.ready, p)
	}
	n.part.divided = true
	n.ready, n.procs = nil, slices.DeleteFunc(n.procs, func(p *Proc) bool { return p.state != procDone })
	return s, nil
}

// Join puts the network together again. A second call does nothing.
func (s *Shards) Join() {
	n := s.whole
	if s.joined {
		return
	}
	s.joined, n.part.divided = true, false
	for _, part := range s.parts {
		n.now = max(n.now, part.now)
		n.count.events += part.count.events
		if n.failure == nil {
			n.failure = part.failure
		}
	}
	n.live = 0
	for _, part := range s.parts {
		for range len(part.heap.keys) {
			n.heap.push(part.heap.pop())
		}
		for _, p := range part.procs {
			p.moveTo(n)
		}
		n.ready = append(n.ready, part.ready...)
		for i := range n.frames.free {
			n.frames.free[i] = append(n.frames.free[i], part.frames.free[i]...)
		}
	}
	for i := range n.nodes {
		n.ticks.Set(uint32(i), n.nodes[i].keyed)
	}
}

// part is what a shard of a divided network knows about the others.
type part struct {
	number int
	of     []int // the shard of each node; nil if the network is whole
	// crossings are the frames that the shard has sent to others in this window.
	crossings []crossing
	divided   bool // this is the network that has been divided (Split), and not joined
}

// crosses reports whether a frame to a node leaves the shard.
func (p *part) crosses(to NodeID) bool { return p.of != nil && p.of[to] != p.number }

// moveTo puts the thread into another network.
func (p *Proc) moveTo(n *Net) {
	p.net, p.id = n, uint32(len(n.procs))
	n.procs = append(n.procs, p)
	if p.state == procParked {
		n.wakes.Set(p.id, p.until)
	}
	if !p.daemon && p.state != procDone {
		n.live++
	}
}

// node returns the node at which the event happens.
func (e *event) node() NodeID {
	if e.stage == leaving {
		return e.to.src
	}
	return e.to.dst.Node
}

// Part returns the shard of a node.
func (s *Shards) Part(id NodeID) *Net { return s.parts[s.parts[0].part.of[id]] }

// Windows returns how many windows Run has run.
func (s *Shards) Windows() uint64 { return s.windows }

// Lookahead returns how long a window is, in virtual time.
func (s *Shards) Lookahead() time.Duration { return s.lookahead }

// fewEvents is the number of events of a window below which it is not worth while to wake workers for the
// next one.
const fewEvents = 256

// Run runs windows until done, which is called between them, returns true.
func (s *Shards) Run(w Workers, done func() bool) error {
	busy := true
	for !done() {
		at := clock.Never
		for _, p := range s.parts {
			at = clock.Min(at, p.next())
		}
		switch c := s.whole.cfg; {
		case at == clock.Never:
			return s.stuck("nothing is left to happen")
		case at > c.MaxTime:
			return s.stuck(fmt.Sprintf("the run would pass %v", c.MaxTime))
		case c.Cancelled != nil && c.Cancelled():
			return ErrCancelled
		}
		before := s.handled()
		if before > s.whole.cfg.MaxEvents {
			return s.stuck(fmt.Sprintf("more than %d events", s.whole.cfg.MaxEvents))
		}
		end := at.Add(s.lookahead)
		run := func(i int) { s.parts[i].window(end) }
		if busy {
			w.Each(len(s.parts), run)
		} else {
			for i := range s.parts {
				run(i)
			}
		}
		s.windows++
		busy = s.Eager || s.handled()-before >= fewEvents
		if err := s.failed(w); err != nil {
			return err
		}
		s.exchange()
	}
	return nil
}

func (s *Shards) handled() (n uint64) {
	for _, p := range s.parts {
		n += p.count.events
	}
	return n + s.whole.count.events
}

// failed returns the error of the first shard that has one, or that of the workers.
func (s *Shards) failed(w Workers) error {
	for _, p := range s.parts {
		if p.failure != nil {
			return p.failure
		}
	}
	return w.Err()
}

func (s *Shards) stuck(reason string) error {
	s.Join()
	return s.whole.stuck(reason)
}

// exchange hands over the frames that have crossed to another shard, in the order of the shards from
// which they come.
func (s *Shards) exchange() {
	for _, from := range s.parts {
		for i := range from.part.crossings {
			c := &from.part.crossings[i]
			to := s.parts[from.part.of[c.to.dst.Node]]
			// The buffer changes its owner. One of the same size comes back, so that no pool grows while
			// another one allocates.
			if b := to.frames.spare(cap(c.frame.data)); b != nil {
				from.frames.put(b)
			}
			c.to.inFlight++
			to.heap.push(event{at: c.at, to: c.to, frame: c.frame})
		}
		clear(from.part.crossings)
		from.part.crossings = from.part.crossings[:0]
	}
}

// window handles all events before the time end.
func (n *Net) window(end clock.Time) {
	for at := n.next(); at < end; at = n.next() {
		if err := n.handle(at); err != nil {
			n.Stop(err)
			return
		}
	}
}
