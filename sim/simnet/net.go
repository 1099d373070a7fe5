package simnet

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
)

// Node is a machine with ports. Frame gives the node a frame that arrives at a port, and Tick runs
// its timers. Both append the frames that the node sends to out, with the egress port in
// Frame.Port. The bytes of f belong to the network and are valid only during the call. Deadline
// returns when the node next needs Tick, or clock.Never if it waits only for frames.
type Node interface {
	Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch)
	Tick(now clock.Time, out *packetio.Batch)
	Deadline() clock.Time
}

// Tap is a node in front of another node. It passes on the frames for which Pass returns true. Pass
// may also change the frame.
type Tap struct {
	Node
	Pass func(now clock.Time, port int, f *packetio.Frame) bool
}

func (t *Tap) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	if t.Pass(now, port, &f) {
		t.Node.Frame(now, port, f, out)
	}
}

// Timing says how long frames take on their way through a node; see Net.SetTiming. The bytes of a
// frame belong to the network and are valid only during the call.
type Timing interface {
	// Begin returns the time, not before now, at which the node begins to work on a frame that reaches
	// it at time now. Frames that reach the node later may begin earlier.
	Begin(now clock.Time, port int, frame []byte) clock.Time
	// Arrive returns the time at which the node gets a frame on which it begins to work at time now;
	// it is not before now. The node may get frames in another order than the one in which they began.
	Arrive(now clock.Time, port int, frame []byte) clock.Time
	// Depart returns the time, not before now, at which a frame leaves the node. The node has
	// appended the frame to `out` at the time now. cause says why the node has made the frame.
	Depart(now clock.Time, port int, frame []byte, cause Cause) clock.Time
}

// Cause says why a node has made a frame.
type Cause struct {
	// Frame is the frame that the node handled when it made its own frame; nil means that it
	// handled none.
	Frame []byte
	// Step is true if the frame was made in a step that Net.Begin began, such as a call of an
	// application.
	Step bool
}

type NodeID int

// Config bounds a run. The zero value is usable.
type Config struct {
	// MaxEvents bounds how many events a run may handle; 0 means 1e9.
	MaxEvents uint64
	// MaxTime is the virtual time at which a run ends with an error; 0 means one hour.
	MaxTime clock.Time
	// Trace is called for every frame event, in order; nil means that there is no trace. The
	// event's bytes are valid only during the call.
	Trace func(*Event)
	// Cancelled is called once every cancelEvery events. If it returns true, the run ends with
	// ErrCancelled; otherwise it has no effect on the run. nil means that the run cannot be
	// cancelled.
	Cancelled func() bool
}

// ErrCancelled is returned by a run that Config.Cancelled has ended.
var ErrCancelled = errors.New("the simulation was cancelled")

const (
	defaultMaxEvents = 1_000_000_000
	defaultMaxTime   = clock.Time(time.Hour)
	// maxStep bounds the number of events at one virtual time. More of them mean a defect, such as
	// a machine whose deadline never advances.
	maxStep = 10_000_000
	// maxHeld bounds the number of frames inside one node with a Timing. Further frames are lost,
	// as if a queue were full.
	maxHeld = 1 << 20
	// cancelEvery is the number of events between two calls of Config.Cancelled. So many events
	// take some milliseconds of real time.
	cancelEvery = 4096
)

type nodeState struct {
	name  string
	node  Node
	up    bool
	keyed clock.Time // the node's deadline as it stands in Net.ticks
	links []*half    // by port: the direction of a link that leaves the node there; nil: no link
	// timing is the node's Timing; nil means that the node takes no time. held is the number of
	// frames that timing keeps inside the node.
	timing Timing
	held   int
	queues *portqueue.Bank // see Net.SetQueues
}

// Net is a set of nodes and links in virtual time. Only one goroutine may use it at a time.
type Net struct {
	cfg    Config
	now    clock.Time
	nodes  []nodeState
	links  []*Link
	ticks  clock.Queue // the deadlines of nodes
	heap   eventHeap
	frames frames
	out    packetio.Batch
	queued queued
	busy   bool // a step of a node is in progress (between Begin and End)
	count  tally
	event  Event // the event that is being traced

	procs   []*Proc     // all threads that were started
	ready   []*Proc     // threads that are runnable, in the order in which they became so
	wakes   clock.Queue // the deadlines of parked threads
	live    int         // threads that are not daemons and have not returned
	current *Proc
	failure error
	closed  bool
	part    part
}

// tally counts events: all, and those since the virtual time last advanced.
type tally struct{ events, step uint64 }

// New returns an empty network at time zero.
func New(cfg Config) *Net {
	cfg.MaxEvents = cmp.Or(cfg.MaxEvents, defaultMaxEvents)
	cfg.MaxTime = cmp.Or(cfg.MaxTime, defaultMaxTime)
	return &Net{cfg: cfg}
}

func (n *Net) Now() clock.Time { return n.now }

// Events returns the number of events handled so far.
func (n *Net) Events() uint64 { return n.count.events }

func (n *Net) Links() []*Link { return n.links }

// Add adds a node to the network; the node is up. It returns the node's ID.
func (n *Net) Add(name string, node Node) NodeID {
	n.nodes = append(n.nodes, nodeState{name: name, node: node, up: true, keyed: clock.Never})
	id := NodeID(len(n.nodes) - 1)
	n.rekey(id)
	return id
}

// Replace replaces the machine of node id by another one, for example at a restart, and switches it
// on.
func (n *Net) Replace(id NodeID, node Node) {
	n.nodes[id].node, n.nodes[id].up = node, true
	n.rekey(id)
}

// SetTiming sets the Timing of a node. nil, which is the default, means that frames take no time in
// the node. The times of frames that are inside the node already do not change.
func (n *Net) SetTiming(id NodeID, t Timing) { n.nodes[id].timing = t }

// SetUp switches a node on or off. While a node is off, frames to it are lost and none of its
// methods is called. The node keeps its state.
func (n *Net) SetUp(id NodeID, up bool) {
	s := &n.nodes[id]
	if s.up && !up {
		s.crashed(n)
	}
	s.up = up
	n.rekey(id)
}

// At calls f at time t, or at the present time if t has passed. Calls and frames that were
// scheduled earlier for the same time come first.
func (n *Net) At(t clock.Time, f func()) {
	if n.part.of != nil || n.part.divided {
		panic("sim: a call is scheduled while the network is divided")
	}
	n.heap.push(event{at: max(t, n.now), call: f})
}

// Begin begins a step of a node that no frame or deadline causes, such as a posted work request.
// Until End, the caller may change the node's state and append frames to the batch; End sends them.
// Steps must not be nested.
func (n *Net) Begin(id NodeID) (now clock.Time, out *packetio.Batch) {
	if n.busy {
		panic(fmt.Sprintf("sim: step of %s within another step", n.nodes[id].name))
	}
	n.busy = true
	return n.now, &n.out
}

func (n *Net) End(id NodeID) {
	n.busy = false
	n.flush(id, Cause{Step: true})
}

// flush sends the frames that a node has appended to n.out, and updates the node's deadline.
func (n *Net) flush(id NodeID, cause Cause) {
	s := &n.nodes[id]
	for i := range n.out.Frames {
		f := &n.out.Frames[i]
		if f.Port < 0 || f.Port >= len(s.links) || s.links[f.Port] == nil || !s.up {
			n.trace(Event{Kind: NoLink, Frame: f.Data, Node: s.name})
			continue
		}
		if s.timing != nil && n.hold(s, f, cause) {
			continue
		}
		s.leave(n, s.links[f.Port], f, f.Port)
	}
	n.out.Reset()
	n.rekey(id)
}

func (n *Net) rekey(id NodeID) {
	s, at := &n.nodes[id], clock.Never
	if s.up {
		at = s.deadlineOf()
	}
	if at != s.keyed {
		s.keyed = at
		n.ticks.Set(uint32(id), at)
	}
}

// next returns the time of the earliest event, or clock.Never if there is none.
func (n *Net) next() clock.Time {
	if len(n.ready) > 0 {
		return n.now
	}
	_, tick := n.ticks.Next()
	_, wake := n.wakes.Next()
	return max(n.now, clock.Min(n.heap.first(), clock.Min(tick, wake)))
}

func (n *Net) handle(at clock.Time) error {
	if at > n.now {
		n.now, n.count.step = at, 0
	}
	n.count.events++
	if n.count.step++; n.count.step > maxStep {
		return n.stuck(fmt.Sprintf("time stands still: %d events in one instant", maxStep))
	}
	if n.count.events%cancelEvery == 0 && n.cfg.Cancelled != nil && n.cfg.Cancelled() {
		return ErrCancelled
	}
	if n.count.events > n.cfg.MaxEvents {
		return n.stuck(fmt.Sprintf("more than %d events", n.cfg.MaxEvents))
	}
	if len(n.ready) > 0 {
		n.runReady()
		return n.failure
	}
	if n.heap.first() <= n.now {
		n.dispatch(n.heap.pop())
		return n.failure
	}
	if id, tick := n.ticks.Next(); tick <= n.now {
		s := &n.nodes[id]
		s.depart(n)
		if s.queues == nil || s.node.Deadline() <= n.now {
			s.node.Tick(n.now, &n.out)
		}
		n.flush(NodeID(id), Cause{})
		return n.failure
	}
	if id, wake := n.wakes.Next(); wake <= n.now {
		n.procs[id].Wake()
		n.procs[id].expired = true
	}
	return n.failure
}

func (n *Net) dispatch(e event) {
	if e.call != nil {
		e.call()
		return
	}
	if e.stage != onLink {
		n.resume(&e)
		return
	}
	h := e.to
	h.inFlight--
	s := &n.nodes[h.dst.Node]
	if !s.up || !h.up {
		h.lostDown++
		n.trace(Event{Kind: LostDown, Frame: e.frame.data, OnTheWay: true, half: h})
	} else {
		h.Stats.Delivered++
		h.Stats.Bytes += uint64(len(e.frame.data))
		n.trace(Event{Kind: Delivered, Frame: e.frame.data, half: h})
		if s.queues != nil && s.paused(n, h.dst.Node, h.dst.Port, e.frame.data) {
			h.Stats.Pauses++
			n.frames.put(e.frame.data)
			return
		}
		if s.timing != nil && (n.stall(s, &e) || n.detain(s, &e)) {
			return
		}
		n.hand(&e)
		return
	}
	n.frames.put(e.frame.data)
}

// hand gives a frame to the node that it has reached. If the node sends it on, its buffer goes along.
func (n *Net) hand(e *event) {
	dst := e.to.dst
	n.frames.given = e.frame.data
	n.nodes[dst.Node].node.Frame(n.now, dst.Port, e.frame.frame(dst.Port), &n.out)
	n.flush(dst.Node, Cause{Frame: e.frame.data})
	n.frames.takeBack()
}

// Run handles events until every thread that is not a daemon has returned. If a thread has not
// returned and no event can happen any more, or if a bound is reached, Run returns a *StuckError
// that names the waiting threads. If a thread has panicked, the error names that thread.
func (n *Net) Run() error {
	for n.live > 0 {
		at := n.next()
		if at == clock.Never {
			return n.stuck("nothing is left to happen")
		}
		if at > n.cfg.MaxTime {
			return n.stuck(fmt.Sprintf("the run would pass %v", n.cfg.MaxTime))
		}
		if err := n.handle(at); err != nil {
			if errors.Is(err, ErrPaused) {
				n.failure = nil
			}
			return err
		}
	}
	return nil
}

// ErrPaused is an error for Stop that only interrupts a run: another one goes on.
var ErrPaused = errors.New("the simulation is paused")

// Stop makes Run and RunUntil return err after the current event.
func (n *Net) Stop(err error) {
	if n.failure == nil {
		n.failure = err
	}
}

// RunUntil handles all events that are due at time t or earlier, and sets the time to t.
func (n *Net) RunUntil(t clock.Time) error {
	for at := n.next(); at <= t && at != clock.Never; at = n.next() {
		if err := n.handle(at); err != nil {
			return err
		}
	}
	n.now = max(n.now, t)
	return nil
}
