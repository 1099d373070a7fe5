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
	leaving packetio.Batch
}

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

// fromQueuedHost handles a frame from host i: it does what a pause frame says, and lets other frames
// pass. Without queues, pause frames have no effect: the pipeline drops them, because no bridge forwards
// their address. Frames leave after each that comes, as far as the rate lets them, because the frames of
// a long batch have come one after another.
func (t *traffic) fromQueuedHost(i int, f packetio.Frame) {
	if t.queues.Control(t.now, i, f.Data) {
		t.show(i, tap.Up, f, "")
		return
	}
	t.fromHost(i, f)
	if t.queues.Deadline() <= t.now {
		t.depart()
	}
}

// longestPause is the time of the pause frames of faults, in quanta.
const longestPause = 65535

// stormy does what faults of kind pause do: towards a host, as if the host sent pause frames all the
// time; and to a host, it sends them. Each is renewed after half of its time.
func (t *traffic) stormy() {
	q := t.queues
	if q == nil || q.storm > t.now {
		return
	}
	q.storm = clock.Never
	cfg := q.Config()
	for i := range t.ports.list {
		p := &t.ports.list[i]
		f := wire.Pause{Src: cfg.MAC, Enabled: p.down.Storms(t.now)}
		up := p.up.Storms(t.now)
		for prio := range f.Time {
			if up>>prio&1 != 0 {
				q.Pause(t.now, i, prio, longestPause)
			}
			if f.Enabled>>prio&1 != 0 {
				f.Time[prio] = longestPause
			}
		}
		if f.Enabled != 0 && p.io != nil {
			data := f.AppendTo(t.scratch.Alloc(f.Len()))
			p.queue.Offer(packetio.Frame{Data: data, Port: i})
			t.show(i, tap.Down, packetio.Frame{Data: data}, "fault (pause)")
		}
		if f.Enabled|up != 0 {
			q.storm = t.now.Add(cfg.Quantum(longestPause) / 2)
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
		t.ports.list[f.Port].queue.Offer(f)
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
