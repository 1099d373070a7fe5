package simnet

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
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
	few       uint64 // see fewEvents
	joined    bool

	mu  sync.Mutex
	err error // of Stop
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
	s := &Shards{whole: n, parts: make([]*Net, slices.Max(of)+1), lookahead: time.Hour, few: fewEvents}
	for i := range s.parts {
		cfg := n.cfg
		cfg.Cancelled = nil // Run asks
		s.parts[i] = &Net{cfg: cfg, now: n.now, nodes: n.nodes, links: n.links, shard: i, shards: of}
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
			s.parts[of[p.node]].adopt(p)
		}
	}
	for _, p := range n.ready {
		p.net.ready = append(p.net.ready, p)
	}
	n.divided = true
	n.ready, n.procs = nil, slices.DeleteFunc(n.procs, func(p *Proc) bool { return p.state != procDone })
	return s, nil
}

// Join puts the network together again. A second call does nothing.
func (s *Shards) Join() {
	n := s.whole
	if s.joined {
		return
	}
	s.joined, n.divided = true, false
	for _, part := range s.parts {
		n.now = max(n.now, part.now)
		n.events += part.events
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
			n.adopt(p)
		}
		n.ready = append(n.ready, part.ready...)
		for i := range n.pool.free {
			n.pool.free[i] = append(n.pool.free[i], part.pool.free[i]...)
		}
	}
	for i := range n.nodes {
		n.ticks.Set(uint32(i), n.nodes[i].keyed)
	}
}

// adopt takes over a thread of another network.
func (n *Net) adopt(p *Proc) {
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
func (s *Shards) Part(id NodeID) *Net { return s.parts[s.parts[0].shards[id]] }

// Windows returns how many windows Run has run.
func (s *Shards) Windows() uint64 { return s.windows }

// Lookahead returns how long a window is, in virtual time.
func (s *Shards) Lookahead() time.Duration { return s.lookahead }

// Stop makes Run return err after the current window. Any goroutine may call it.
func (s *Shards) Stop(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err == nil {
		s.err = err
	}
}

// fewEvents is the number of events of a window below which it is not worth while to wake other workers.
const fewEvents = 256

// Run runs windows until done, which is called between them, returns true. workers is the number of
// goroutines that run shards.
func (s *Shards) Run(workers int, done func() bool) error {
	crew := newCrew(s, max(workers, 1))
	defer crew.close()
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
		crew.run(at.Add(s.lookahead), busy)
		s.windows++
		busy = s.handled()-before >= s.few
		if err := s.failed(); err != nil {
			return err
		}
		s.exchange()
	}
	return nil
}

func (s *Shards) handled() (n uint64) {
	for _, p := range s.parts {
		n += p.events
	}
	return n + s.whole.events
}

// failed returns the error of the first shard that has one, or that of Stop.
func (s *Shards) failed() error {
	for _, p := range s.parts {
		if p.failure != nil {
			return p.failure
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func (s *Shards) stuck(reason string) error {
	s.Join()
	return s.whole.stuck(reason)
}

// exchange hands over the frames that have crossed to another shard, in the order of the shards from
// which they come.
func (s *Shards) exchange() {
	for _, from := range s.parts {
		for i := range from.crossings {
			c := &from.crossings[i]
			to := s.parts[from.shards[c.to.dst.Node]]
			// The buffer changes its owner. One of the same size comes back, so that no pool grows while
			// another one allocates.
			if b := to.pool.spare(cap(c.frame.data)); b != nil {
				from.pool.put(b)
			}
			c.to.inFlight++
			to.heap.push(event{at: c.at, to: c.to, frame: c.frame})
		}
		clear(from.crossings)
		from.crossings = from.crossings[:0]
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

// crew is the workers of a run, and the window that they run.
type crew struct {
	shards *Shards
	end    clock.Time
	next   atomic.Int32 // the shard that a worker takes next
	start  []chan struct{}
	done   sync.WaitGroup
}

func newCrew(s *Shards, workers int) *crew {
	c := &crew{shards: s}
	for range workers - 1 {
		start := make(chan struct{}, 1)
		c.start = append(c.start, start)
		go func() {
			for range start {
				c.work()
				c.done.Done()
			}
		}()
	}
	return c
}

func (c *crew) close() {
	for _, start := range c.start {
		close(start)
	}
}

// run runs one window. Without help, the caller alone works.
func (c *crew) run(end clock.Time, help bool) {
	c.end = end
	c.next.Store(0)
	if help {
		c.done.Add(len(c.start))
		for _, start := range c.start {
			start <- struct{}{}
		}
	}
	c.work()
	c.done.Wait()
}

func (c *crew) work() {
	for {
		i := int(c.next.Add(1)) - 1
		if i >= len(c.shards.parts) {
			return
		}
		c.shards.parts[i].window(c.end)
	}
}
