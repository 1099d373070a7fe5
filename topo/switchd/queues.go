package switchd

import (
	"net/http"

	"github.com/rdmalab/rdmalab/softrnic/capture/tap"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/clock/real"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// queues are the egress queues of ports that have a rate (rack-file key ports). A nil *queues means
// that the ports have none: then a frame waits in the queue of its port (pipeline.Queue) until the end
// of the round alone.
type queues struct {
	*portqueue.Bank
	clk     *real.Clock
	storm   clock.Time // when the faults of kind pause send their next frames
	storms  []stormed  // by port
	leaving packetio.Batch
}

// stormed has the priorities of a port that faults of kind pause have stopped, bit i for priority i: up
// those of the switch towards the host, down those of the host.
type stormed struct{ up, down uint8 }

// newQueues makes the queues that the rack file describes; nil if cfg is nil.
func newQueues(cfg *portqueue.Config, ports int, clk *real.Clock) (*queues, error) {
	if cfg == nil {
		return nil, nil
	}
	bank, err := portqueue.New(*cfg, ports)
	if err != nil {
		return nil, err
	}
	return &queues{Bank: bank, clk: clk}, nil // storm is zero: the first round looks for faults of the rack file
}

func (q *queues) deadline() clock.Time {
	if q == nil {
		return clock.Never
	}
	return clock.Min(q.Deadline(), q.storm)
}

// lost drops the frames for a port whose link is lost, and returns the number of packets.
func (q *queues) lost(i int) int {
	if q == nil {
		return 0
	}
	return q.Discard(q.clk.Now(), i)
}

// fromQueuedHost handles a frame from host i. Frames leave after each that comes, as far as the rate lets
// them, because the frames of a long batch have come one after another.
func (t *traffic) fromQueuedHost(i int, f packetio.Frame) {
	t.fromHost(i, f)
	if t.queues.Deadline() <= t.now {
		t.depart()
	}
}

// paused reports whether a frame that has come over the link of host i is a pause frame, and does what it
// says. Without queues, pause frames have no effect: the pipeline drops them, because no bridge forwards
// their address.
func (t *traffic) paused(i int, f packetio.Frame, comment string, late bool) bool {
	if t.queues == nil || !t.queues.Control(t.now, i, f.Data) {
		return false
	}
	if !late {
		t.show(i, tap.Up, f, comment)
	}
	return true
}

// pauseHost sends a pause frame of port i to its host, over the faults of the link.
func (t *traffic) pauseHost(i int, f packetio.Frame) {
	in := t.ports.list[i].down
	if !in.Active() {
		t.offer(i, f)
		t.show(i, tap.Down, f, "")
		return
	}
	v := in.Frame(t.now, f.Data)
	f, dropped := t.distort(i, f, &v)
	comment := t.explain(&v)
	switch {
	case dropped:
	case v.Delay > 0:
		for range 1 + v.Copies {
			if !t.delays.add(t.now.Add(v.Delay), i, tap.Down, f) {
				t.sw.CountDrop(i, pipeline.ReasonHoldFull, 1)
				comment = join(comment, "dropped: too many frames are delayed")
			}
		}
	default:
		for range 1 + v.Copies {
			t.offer(i, f)
		}
	}
	t.show(i, tap.Down, f, comment)
}

// longestPause is the time of the pause frames of faults, in quanta.
const longestPause = 65535

// stormy does what faults of kind pause do: towards a host, as if the host sent pause frames all the
// time; and to a host, it sends them. Each is renewed after half of its time. When a fault ends, the
// priority goes on at once, as if its last pause frame had said so.
func (t *traffic) stormy() {
	q := t.queues
	if q == nil || q.storm > t.now {
		return
	}
	q.storm = clock.Never
	cfg := q.Config()
	for len(q.storms) < len(t.ports.list) {
		q.storms = append(q.storms, stormed{})
	}
	for i := range t.ports.list {
		p, was := &t.ports.list[i], q.storms[i]
		up, upEnd := p.up.Storms(t.now)
		down, downEnd := p.down.Storms(t.now)
		q.storms[i] = stormed{up, down}
		f := wire.Pause{Src: cfg.MAC, Enabled: down | was.down}
		for prio := range f.Time {
			switch bit := uint8(1) << prio; {
			case up&bit != 0:
				q.Pause(t.now, i, prio, longestPause)
			case was.up&bit != 0:
				q.Pause(t.now, i, prio, 0)
			}
			if down>>prio&1 != 0 {
				f.Time[prio] = longestPause
			}
		}
		if f.Enabled != 0 && p.io != nil {
			data := f.AppendTo(t.scratch.Alloc(f.Len()))
			t.offer(i, packetio.Frame{Data: data, Port: i})
			t.show(i, tap.Down, packetio.Frame{Data: data}, "fault (pause)")
		}
		if up|down != 0 {
			next := t.now.Add(cfg.Quantum(longestPause) / 2)
			q.storm = clock.Min(q.storm, clock.Min(next, clock.Min(upEnd, downEnd)))
		}
	}
}

// queue puts a frame into the queue of its priority.
func (t *traffic) queue(to int, f packetio.Frame, comment string) {
	if !t.observing {
		comment = ""
	}
	if n := t.queues.Offer(t.now, int(f.Origin)-1, to, f, comment); n > 0 {
		t.sw.CountDrop(to, pipeline.ReasonQueueFull, n)
		if t.observing {
			t.show(to, tap.Down, f, join(comment, "dropped: no room in the packet buffer for "+t.ports.hosts[to]))
		}
	}
}

// depart moves the frames that leave now from the queues to their ports, whose queues have no bounds
// then and are sent at the end of the round.
func (t *traffic) depart() {
	q := t.queues
	first := len(q.leaving.Frames)
	about := q.Due(t.now, &q.leaving)
	for k := first; k < len(q.leaving.Frames); k++ {
		f := q.leaving.Frames[k]
		if wire.IsPause(f.Data) {
			t.pauseHost(f.Port, f)
			continue
		}
		t.offer(f.Port, f)
		if !t.observing {
			continue
		}
		comment := ""
		if len(about) > 0 && about[0].Index == k {
			if comment = about[0].Note; about[0].Marked {
				comment = join(comment, "CE set by the switch's queue")
			}
			about = about[1:]
		}
		t.show(f.Port, tap.Down, f, comment)
	}
}

// Queues is the answer to GET /queues.
type Queues struct {
	// Rate is that of each port in bits per second; 0 means that the ports have no queues (rack-file key
	// ports). Buffer is the size of the packet buffer in bytes, Used how it is used.
	Rate   int64           `json:"rate"`
	Buffer int64           `json:"buffer"`
	Used   portqueue.Usage `json:"used"`
	// Lossless lists the lossless priorities.
	Lossless []int `json:"lossless,omitempty"`
	// GlobalPauses and BadPauses count pause frames without effect.
	GlobalPauses uint64       `json:"globalPauses"`
	BadPauses    uint64       `json:"badPauses"`
	Ports        []PortQueues `json:"ports"`
}

// PortQueues has the priorities of a port.
type PortQueues struct {
	Host       string             `json:"host"`
	Priorities []portqueue.Status `json:"priorities"`
}

// handleQueues serves the listing of queues.
func (d *Daemon) handleQueues(m *control.Mux) {
	control.Handle(m, "GET /queues", func(*http.Request, none) (out Queues, err error) {
		err = d.commands.Do(func() { out = d.traffic.listQueues() })
		return out, err
	})
}

func (t *traffic) listQueues() (out Queues) {
	if t.queues == nil {
		return out
	}
	cfg := t.queues.Config()
	out.Rate, out.Buffer, out.Used = cfg.Rate, cfg.Buffer, t.queues.Used()
	out.GlobalPauses, out.BadPauses = t.queues.Pauses()
	for prio := range cfg.Classes {
		if cfg.Classes[prio].Lossless {
			out.Lossless = append(out.Lossless, prio)
		}
	}
	now := t.clk.Now()
	for i, host := range t.ports.hosts {
		if host == "" {
			continue
		}
		list := t.queues.Port(now, i)
		out.Ports = append(out.Ports, PortQueues{Host: host, Priorities: list[:]})
	}
	return out
}
