package simnet

import (
	"cmp"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// End is an end of a link: a port of a node.
type End struct {
	Node NodeID
	Port int
}

// Verdict decides by fault rules what happens to a frame that enters one direction of a link.
// (*fault.Injector).Frame is a Verdict.
type Verdict func(now clock.Time, frame []byte) fault.Verdict

// LinkConfig describes a link between two ports.
type LinkConfig struct {
	Name string
	// A is the host's end, B the switch's end. The direction from A to B is fault.Up.
	A, B End
	// Delay is how long a bit takes from end to end.
	Delay time.Duration
	// Rate is in bits per second; 0 means that sending a frame takes no time.
	Rate int64
	// Overhead is a number of bytes, such as those of the preamble. The simulator adds it to the
	// size of each frame when it computes how long the frame occupies a link with a Rate. With an
	// Overhead, sending times are exact to a picosecond in the long run. Without it, each time is
	// truncated to whole nanoseconds.
	Overhead int
	// Queue is how many frames may wait in one direction until the link is free, if Rate is set; 0
	// means 1024. Further frames are dropped and counted.
	Queue int
	// Up and Down decide by fault rules about the frames of their direction; nil means no faults.
	Up, Down Verdict
}

const (
	defaultQueue = 1024
	// maxInFlight bounds the frames in flight in one direction of a link, for any delay.
	maxInFlight = 1 << 16
)

// LinkStats counts the frames of one direction of a link: Sent those that were put on it, Delivered
// those that arrived, with their Bytes. Copies of duplicated frames are not in Sent.
type LinkStats struct {
	Sent, Delivered, Bytes uint64
	// The fields Lost… count frames that did not arrive, by the reason: a fault, a full queue, or a
	// link or node that was down.
	LostFault, LostQueue, LostDown uint64
	Duplicated, Corrupted, Delayed uint64
	// Pauses counts frames that arrived and that the queues of the node took: pause frames, also invalid
	// ones.
	Pauses uint64
}

// Link joins two ports, with a direction from host to switch (up) and one back (down).
type Link struct {
	Name     string
	up, down half
}

type half struct {
	link     *Link
	dir      fault.Dir
	src      NodeID
	dst      End
	cfg      *LinkConfig
	fault    Verdict
	up       bool // false: the link is cut
	inFlight int  // number of frames in flight
	// queue holds, for each frame that has not left completely, the time at which its last bit will
	// have been sent. The first gone ones have left.
	queue []clock.Time
	gone  int
	// carry is a fraction of a nanosecond, in picoseconds. The last frame in queue leaves this much
	// later than queue says.
	carry int64
	Stats LinkStats
	// lostDown and lostQueue are the losses at the receiving end, which may be in another shard than the
	// sending one.
	lostDown, lostQueue uint64
}

// Connect makes a link between two ports, which must be free.
func (n *Net) Connect(cfg LinkConfig) *Link {
	cfg.Queue = cmp.Or(cfg.Queue, defaultQueue)
	l := &Link{Name: cfg.Name}
	l.up = half{link: l, dir: fault.Up, src: cfg.A.Node, dst: cfg.B, cfg: &cfg, fault: cfg.Up, up: true}
	l.down = half{link: l, dir: fault.Down, src: cfg.B.Node, dst: cfg.A, cfg: &cfg, fault: cfg.Down, up: true}
	n.plug(cfg.A, &l.up)
	n.plug(cfg.B, &l.down)
	n.links = append(n.links, l)
	return l
}

func (n *Net) plug(e End, h *half) {
	s := &n.nodes[e.Node]
	for len(s.links) <= e.Port {
		s.links = append(s.links, nil)
	}
	if s.links[e.Port] != nil {
		panic("sim: port of " + s.name + " is in use by link " + s.links[e.Port].link.Name)
	}
	s.links[e.Port] = h
}

// SetUp raises or cuts the link. Frames in flight are lost if the link is cut when they arrive.
func (l *Link) SetUp(up bool) { l.up.up, l.down.up = up, up }

// SetFaults replaces the functions that decide about the frames of both directions; nil means no
// faults.
func (l *Link) SetFaults(up, down Verdict) { l.up.fault, l.down.fault = up, down }

func (l *Link) Stats(d fault.Dir) LinkStats {
	h := l.half(d)
	s := h.Stats
	s.LostDown += h.lostDown
	s.LostQueue += h.lostQueue
	return s
}

func (l *Link) half(d fault.Dir) *half {
	if d == fault.Up {
		return &l.up
	}
	return &l.down
}

// send puts a frame on one direction of a link. The verdict of the link's fault rules may lose,
// copy, corrupt or delay it.
func (n *Net) send(h *half, f *packetio.Frame) {
	h.Stats.Sent++
	if !h.up {
		h.Stats.LostDown++
		n.trace(Event{Kind: LostDown, Frame: f.Data, half: h})
		return
	}
	var v fault.Verdict
	if h.fault != nil {
		v = h.fault(n.now, f.Data)
	}
	if v.Drop {
		h.Stats.LostFault++
		n.trace(Event{Kind: LostFault, Frame: f.Data, Rules: v.Rules, half: h})
		return
	}
	for range 1 + v.Copies {
		n.sendCopy(h, f, &v)
	}
	if v.Copies > 0 {
		h.Stats.Duplicated += uint64(v.Copies)
		n.trace(Event{Kind: Duplicated, Frame: f.Data, Rules: v.Rules, half: h})
	}
}

// Inject puts a frame on one direction of a link at once, without asking for a fault verdict. In
// the trace, the frame has `rules` as the IDs of the fault rules that have hit it.
func (n *Net) Inject(l *Link, d fault.Dir, f packetio.Frame, rules []string) {
	h := l.half(d)
	h.Stats.Sent++
	n.sendCopy(h, &f, &fault.Verdict{Rules: rules})
}

func (n *Net) sendCopy(h *half, f *packetio.Frame, v *fault.Verdict) {
	crosses := n.part.crosses(h.dst.Node)
	leaves, ok := h.serialise(n.now, len(f.Data), crosses)
	if !ok {
		h.Stats.LostQueue++
		n.trace(Event{Kind: LostQueue, Frame: f.Data, half: h})
		return
	}
	c := n.frames.carry(f, v.Corrupt || v.Mark)
	if v.Corrupt {
		fault.FlipBit(c.data, v.Bit)
		h.Stats.Corrupted++
		n.trace(Event{Kind: Corrupted, Frame: c.data, Rules: v.Rules, half: h})
	}
	if v.Mark {
		wire.SetCE(c.data)
	}
	if v.Delay > 0 {
		h.Stats.Delayed++
	}
	n.trace(Event{Kind: Sent, Frame: c.data, Rules: v.Rules, half: h})
	at := leaves.Add(h.cfg.Delay + max(v.Delay, 0))
	if crosses {
		n.part.crossings = append(n.part.crossings, crossing{h, at, c})
		return
	}
	h.inFlight++
	n.heap.push(event{at: at, to: h, frame: c})
}

// serialise returns the time at which the last bit of a frame of size bytes has been sent. It
// returns false if the queue is full. crosses is true if the frame goes to another shard.
func (h *half) serialise(now clock.Time, size int, crosses bool) (clock.Time, bool) {
	if !crosses && h.inFlight >= maxInFlight { // another shard counts what has crossed
		return 0, false
	}
	if h.cfg.Rate == 0 {
		return now, true
	}
	for h.gone < len(h.queue) && h.queue[h.gone] <= now {
		h.gone++
	}
	if h.gone > len(h.queue)/2 { // so a frame is moved once on average
		h.queue = append(h.queue[:0], h.queue[h.gone:]...)
		h.gone = 0
	}
	if h.waiting() > h.cfg.Queue {
		return 0, false
	}
	start := now
	if h.waiting() > 0 {
		start = h.queue[len(h.queue)-1]
	}
	leaves := start.Add(h.sending(size))
	h.queue = append(h.queue, leaves)
	return leaves, true
}

// waiting returns how many frames have not left completely.
func (h *half) waiting() int { return len(h.queue) - h.gone }

// sending returns for how long a frame of size bytes occupies the link.
func (h *half) sending(size int) time.Duration {
	bits := int64(size+h.cfg.Overhead) * 8
	if h.cfg.Overhead == 0 {
		return time.Duration(bits * int64(time.Second) / h.cfg.Rate)
	}
	if h.waiting() == 0 {
		h.carry = 0 // the link is idle now, so no earlier frame leaves a fraction
	}
	ps := bits*picosPerSecond/h.cfg.Rate + h.carry
	h.carry = ps % 1000
	return time.Duration(ps / 1000)
}

// picosPerSecond is 10^12. Multiplied by the bits of the largest frame, it is below 2^63.
const picosPerSecond = 1_000_000_000_000

// stall is called for a frame that has reached a node with a Timing. It keeps the frame until the
// time that Timing.Begin returns. If the node begins to work on the frame now, it returns false.
func (n *Net) stall(s *nodeState, e *event) bool {
	return n.keep(s, e, s.timing.Begin(n.now, e.to.dst.Port, e.frame.data), stalled)
}

// detain is called for a frame on which a node with a Timing begins to work. It keeps the frame until
// the time that Timing.Arrive returns. If the node gets the frame now, it returns false.
func (n *Net) detain(s *nodeState, e *event) bool {
	return n.keep(s, e, s.timing.Arrive(n.now, e.to.dst.Port, e.frame.data), inside)
}

// keep keeps the frame of e in its node, at a stage, until a time. If that is now, it returns false.
// A frame that does not fit into the node is lost.
func (n *Net) keep(s *nodeState, e *event, at clock.Time, in stage) bool {
	if at <= n.now {
		return false
	}
	if s.held >= maxHeld {
		e.to.lostQueue++
		n.trace(Event{Kind: LostQueue, Frame: e.frame.data, half: e.to})
		n.frames.put(e.frame.data)
		return true
	}
	s.held++
	e.at, e.stage = at, in
	n.heap.push(*e)
	return true
}

// hold is called for a frame that a node with a Timing has made. It keeps a copy of the frame until
// the time that Timing.Depart returns. If the frame leaves now, it returns false.
func (n *Net) hold(s *nodeState, f *packetio.Frame, cause Cause) bool {
	at := s.timing.Depart(n.now, f.Port, f.Data, cause)
	if at <= n.now {
		return false
	}
	h := s.links[f.Port]
	if s.held >= maxHeld {
		h.Stats.LostQueue++
		n.trace(Event{Kind: LostQueue, Frame: f.Data, half: h})
		return true
	}
	s.held++
	n.heap.push(event{at: at, to: h, stage: leaving, frame: n.frames.carry(f, false)})
	return true
}

// resume is called when a frame has spent its time inside a node. It passes the frame on, to the
// node or to the link. If the node was switched off meanwhile, the frame is lost.
func (n *Net) resume(e *event) {
	id := e.to.dst.Node
	if e.stage == leaving {
		id = e.to.src
	}
	s := &n.nodes[id]
	s.held--
	switch {
	case !s.up:
		if e.stage == leaving {
			e.to.Stats.LostDown++
		} else {
			e.to.lostDown++
		}
		n.trace(Event{Kind: LostDown, Frame: e.frame.data, OnTheWay: e.stage != leaving, half: e.to})
	case e.stage == leaving:
		n.frames.given = e.frame.data
		f := e.frame.frame(0)
		f.Origin = e.frame.origin
		port := 0
		if s.queues != nil {
			port = slices.Index(s.links, e.to)
		}
		s.leave(n, e.to, &f, port)
		n.rekey(id)
		n.frames.takeBack()
		return
	case e.stage == stalled && n.detain(s, e):
		return
	default:
		n.hand(e)
		return
	}
	n.frames.put(e.frame.data)
}
