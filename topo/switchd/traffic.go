package switchd

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/paced"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// traffic moves frames from the ports to the egress queues: through the faults of the links up, the
// pipeline, and the faults of the links down. The loop owns it.
type traffic struct {
	ports *ports
	sw    *pipeline.Switch
	plan  *fault.Set
	hub   *tap.Hub
	clk   *real.Clock
	wall  time.Time // the time at which clk was zero

	ring      *pathtrace.Ring // records when packets pass; nil means that no trace is recorded
	traced    []int           // the traced ports; empty: all ports
	delays    delays
	queues    *queues       // egress queues of ports with a rate; nil: the ports have none
	costs     *paced.Switch // lets frames to hosts take time; nil means that they take none
	now       clock.Time    // when the present call of round began; also set before commands run
	observing bool          // true if a capture runs
	cause     []byte        // the frame that switched passes to the pipeline; nil in other steps
	look      looks
	// kept is true while keptToHosts and crossed run. The program may then release all frames that it has
	// queued, more than an egress queue holds. So enqueue sends the frames of a full queue to make
	// room. While kept is false, enqueue drops a frame for which there is no room.
	kept    bool
	broken  bool           // Send has failed at a port since the last flush
	out     packetio.Batch // frames that the pipeline sends in this round
	scratch packetio.Batch // frames that were encoded, split, copied or changed by faults in this round
	opens   opens
}

// looks says from which ports a round receives.
type looks struct {
	// memoryOnly is true while a thread that carries frames of direct links runs round. Then came has the
	// ports at which frames have come.
	memoryOnly bool
	came       []int
	all        []int // the numbers of all ports
}

// connect makes the fault injectors and the egress queue of port i.
func (t *traffic) connect(i int) {
	p, host := &t.ports.list[i], t.ports.hosts[i]
	p.up, p.down = t.plan.Injector(host, fault.Up), t.plan.Injector(host, fault.Down)
	p.queue = pipeline.Queue{MaxPackets: t.ports.queue, MaxBytes: maxQueueBytes}
	if t.queues != nil {
		p.queue = pipeline.Queue{}
		if i == t.queues.Ports() {
			t.queues.AddPort()
		}
	}
}

// deadline returns when the next round must run, even if no frame arrives.
func (t *traffic) deadline() clock.Time {
	at := clock.Min(clock.Min(t.delays.next(), t.sw.Deadline()), clock.Min(t.queues.deadline(), t.ports.trunks.deadline()))
	if t.costs != nil {
		at = clock.Min(at, t.costs.Deadline())
	}
	return clock.Min(at, t.ports.timers.at)
}

// waited is called when a wait for frames has ended: those that the next round finds have come now, as
// far as one can know, and not while nothing came.
func (t *traffic) waited() { t.now = t.clk.Now() }

// round handles all frames that have arrived or are due, and reports whether there were any. The
// memory of its frames is valid until the next round: received frames by the contract of
// packetio.Port, the others because round resets their batches at its start.
func (t *traffic) round() (busy bool) {
	before := t.now
	t.now = t.clk.Now()
	if t.queues != nil {
		t.queues.Since(before)
	}
	t.observing = t.hub.Active()
	t.sw.Observe(t.observing)
	t.out.Reset()
	t.scratch.Trim(keptScratch)
	for _, i := range t.looksAt() {
		p := &t.ports.list[i]
		if p.io == nil {
			continue
		}
		n, err := t.recv(p)
		if err != nil {
			t.ports.lost(i, err)
			continue
		}
		if n > 0 {
			busy = true
			t.record(pathtrace.Received, i)
		}
		for _, f := range p.rx.Frames {
			if f.Open != nil {
				if t.passOpen(i, &f) {
					continue
				}
				f = t.encoded(f)
			}
			if t.queues != nil {
				t.fromQueuedHost(i, f)
				continue
			}
			t.fromHost(i, f)
		}
	}
	t.stormy()
	for range MaxDelayed { // the bound keeps a round with delays of zero from going on for ever
		if t.delays.next() > t.now {
			break
		}
		t.undelay()
		busy = true
	}
	if t.sw.Deadline() <= t.now {
		start := len(t.out.Frames)
		t.sw.Tick(t.now, &t.out)
		t.keptToHosts(start)
		busy = true
	}
	if t.crossed() {
		busy = true
	}
	t.exchange()
	t.flush()
	t.ports.timers.tick(t.now)
	return busy
}

// looksAt returns the numbers of the ports from which a round receives.
func (t *traffic) looksAt() []int {
	if t.look.memoryOnly {
		return t.look.came
	}
	for len(t.look.all) < len(t.ports.list) {
		t.look.all = append(t.look.all, len(t.look.all))
	}
	return t.look.all
}

// recv receives from a port: if looks.memoryOnly is set, from its direct link alone.
func (t *traffic) recv(p *port) (int, error) {
	if !t.look.memoryOnly {
		return p.io.Recv(&p.rx)
	}
	if l, ok := p.io.(*doubleLink); ok {
		return l.memory.Recv(&p.rx)
	}
	p.rx.Reset() // the frames of the last round were forwarded then
	return 0, nil
}

// undelay takes the first delayed frame, whose time has come, and continues after the fault that
// delayed it: a frame from a host enters the pipeline, and a frame to a host enters its egress
// queue.
func (t *traffic) undelay() {
	e := t.delays.pop(&t.scratch)
	if e.dir == tap.Up {
		t.switched(e.port, e.frame, "", true)
		return
	}
	if t.ports.list[e.port].io == nil {
		t.sw.CountDrop(e.port, pipeline.ReasonPortDown, e.frame.Packets())
		return
	}
	if t.queues != nil && wire.IsPause(e.frame.Data) { // in no queue: see pauseHost
		t.offer(e.port, e.frame)
		return
	}
	t.enqueue(e.port, e.frame, "left after its delay")
}

// switched passes a frame to the pipeline, and the resulting frames to the egress queues. comment
// says what faults did to the frame on its link, in direction up. late is true if one delayed it.
// Such a frame was captured when it arrived, so it is captured once more only if there is something
// to say about it.
func (t *traffic) switched(in int, f packetio.Frame, comment string, late bool) {
	if t.paused(in, f, comment, late) || t.ports.trunks.took(t.now, in, f.Data) {
		return
	}
	start := len(t.out.Frames)
	t.sw.Frame(t.now, in, f, &t.out)
	t.cause = f.Data
	defer func() { t.cause = nil }()
	if !t.observing {
		t.toHosts(start, nil)
		return
	}
	notes := t.sw.Notes()
	for _, n := range notes {
		if n.Out < 0 {
			comment = join(comment, t.comment(n, ", to "))
		}
	}
	if !late || comment != "" {
		t.hub.Frame(t.unixNanos(), in, tap.Up, f, comment)
	}
	t.toHosts(start, notes)
}

// toHosts passes the frames that the pipeline has appended to out, from index `start` on, to the
// egress queues.
func (t *traffic) toHosts(start int, notes []pipeline.Note) {
	for k := start; k < len(t.out.Frames); k++ {
		comment := ""
		for _, n := range notes {
			if n.Out == k {
				comment = join(comment, t.comment(n, ", from "))
			}
		}
		f := t.out.Frames[k]
		if f.Open != nil {
			t.openToHost(f.Port, f)
			continue
		}
		if t.costs == nil || !wire.IsRoCE(f.Data) {
			t.toHost(f.Port, f, comment)
			continue
		}
		t.pace(f, comment)
	}
}

// keptToHosts does what toHosts does, for the frames of a step that was not begun by a frame from a
// host: a timer of the program has expired, or an operator has made a request.
func (t *traffic) keptToHosts(start int) {
	t.kept = true
	t.toHosts(start, t.sw.Notes())
	t.kept = false
}

// comment returns the comment of a captured frame: the text of note n and, if n names one, the
// other port of the frame. side, like ", from ", stands between the two.
func (t *traffic) comment(n pipeline.Note, side string) string {
	if n.Peer < 0 {
		return n.Text
	}
	return n.Text + side + t.ports.hosts[n.Peer]
}

func (t *traffic) enqueue(to int, f packetio.Frame, comment string) {
	f.Port = to
	if t.queues != nil {
		t.queue(to, f, comment)
		return
	}
	taken := t.offer(to, f)
	if !taken && t.kept {
		t.send(to)
		taken = t.offer(to, f)
	}
	if !taken {
		t.sw.CountDrop(to, pipeline.ReasonQueueFull, f.Packets())
		if f.Open != nil {
			f.Open.Return()
		}
		if t.observing {
			comment = join(comment, "dropped: egress queue of "+t.ports.hosts[to]+" is full")
		}
	}
	if t.observing {
		t.hub.Frame(t.unixNanos(), to, tap.Down, f, comment)
	}
}

// flush sends the frames of all egress queues. Then it closes the ports whose Send has failed. It
// does not close them earlier, because the queues of other ports may hold frames in the memory of a
// failed port.
func (t *traffic) flush() {
	if t.queues != nil {
		t.depart()
		defer t.queues.leaving.Reset()
	}
	for _, i := range t.ports.filled {
		t.send(i)
	}
	t.ports.filled = t.ports.filled[:0]
	if !t.broken {
		return
	}
	for i := range t.ports.list {
		if p := &t.ports.list[i]; p.broken != nil {
			t.ports.lost(i, p.broken)
			p.broken = nil
		}
	}
	t.broken = false
}

// offer puts a frame into the queue of port i, if there is room.
func (t *traffic) offer(i int, f packetio.Frame) bool {
	q := &t.ports.list[i].queue
	if q.Len() == 0 {
		t.ports.filled = append(t.ports.filled, i)
	}
	return q.Offer(f)
}

func (t *traffic) send(i int) {
	p := &t.ports.list[i]
	if p.queue.Len() == 0 {
		return
	}
	if p.io == nil {
		t.sw.CountDrop(i, pipeline.ReasonPortDown, p.queue.Discard())
		return
	}
	t.record(pathtrace.Sending, i)
	packets, bytes, refused, err := p.queue.Flush(p.io)
	t.record(pathtrace.Sent, i)
	p.sent[0] += uint64(packets)
	p.sent[1] += uint64(bytes)
	if refused > 0 {
		t.sw.CountDrop(i, pipeline.ReasonNoTx, min(packets, max(refused, p.refused())))
	}
	if err != nil {
		p.broken, t.broken = err, true
	}
}

func join(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// step runs f as a step of the program, and sends the frames that f emits. Only the loop calls it.
func (t *traffic) step(f func(c *pipeline.Ctx)) {
	start := len(t.out.Frames)
	t.sw.Step(t.now, &t.out, f)
	t.keptToHosts(start)
	t.flush()
}

// unixNanos returns the time stamp for captures. It reads the clock, because the time of the round
// is the same for a whole burst.
func (t *traffic) unixNanos() int64 {
	return t.wall.UnixNano() + int64(t.clk.Real(time.Duration(t.clk.Now())))
}

// load replaces the running program. It sends the frames that the former program held.
func (t *traffic) load(l *Loaded) error {
	start := len(t.out.Frames)
	if err := t.sw.Load(t.now, l.Program, l.Self, &t.out); err != nil {
		return err
	}
	t.keptToHosts(start)
	t.flush()
	return nil
}
