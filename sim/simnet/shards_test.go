package simnet

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/sim/workers"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// relay sends each frame on, at a port that depends on its bytes, until its count of hops is 0. Some frames
// it doubles, some it answers with one of its own, and it has a timer.
type relay struct {
	ports int
	log   []string
	next  clock.Time
	ticks int
}

func (r *relay) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	r.log = append(r.log, fmt.Sprintf("%v port %d: %x", now, port, f.Data))
	if f.Data[0] == 0 {
		return
	}
	f.Data[0]--
	h := fnv.New32a()
	h.Write(f.Data)
	sum := h.Sum32()
	out.Frames = append(out.Frames, f)
	out.Frames[len(out.Frames)-1].Port = int(sum) % r.ports
	switch sum / 97 % 5 {
	case 0: // the same bytes at another port: the buffer of the frame must serve both
		f.Port = int(sum+1) % r.ports
		out.Frames = append(out.Frames, f)
	case 1:
		out.Add(int(sum+1)%r.ports, append(out.Alloc(5), f.Data[0]/2, byte(sum), 1, 2, 3))
	}
}

func (r *relay) Tick(now clock.Time, out *packetio.Batch) {
	r.log = append(r.log, fmt.Sprintf("%v tick", now))
	r.next = clock.Never
	if r.ticks--; r.ticks > 0 {
		r.next = now.Add(1300007 * time.Nanosecond)
		out.Add(r.ticks%r.ports, append(out.Alloc(4), 6, byte(r.ticks), 9, 9))
	}
}

func (r *relay) Deadline() clock.Time { return r.next }

// circle has nodes of which each has a link to the next two, with delays that differ, so that hardly two frames
// reach a node at one instant: their order would depend on the shards.
func circle(n int) (*Net, []*relay) {
	net := New(Config{})
	var list []*relay
	for i := range n {
		r := &relay{ports: 4, next: clock.Time(100_000 + 7919*i), ticks: 40}
		net.Add(fmt.Sprintf("n%d", i), r)
		list = append(list, r)
	}
	for i := range n {
		for k := range 2 {
			far := (i + k + 1) % n
			net.Connect(LinkConfig{
				Name: fmt.Sprintf("%d-%d", i, far), A: End{NodeID(i), k}, B: End{NodeID(far), 2 + k},
				Delay: time.Millisecond + time.Duration(i*37_713+k*11_007), Rate: 1e6 + int64(i*1009+k*131), Overhead: 8,
			})
		}
	}
	return net, list
}

// threads puts a thread on each node, which sends a frame now and then.
func threads(net *Net, n int) []*Proc {
	var list []*Proc
	for i := range n {
		p := net.Go(fmt.Sprintf("p%d", i), true, func(p *Proc) {
			for k := range 5 {
				_, out := p.net.Begin(NodeID(i))
				out.Add(k%4, binary.BigEndian.AppendUint16(append(out.Alloc(4), 9, byte(k)), uint16(i)))
				p.net.End(NodeID(i))
				p.Park(p.net.Now().Add(time.Duration(3_000_000+i*13_331+k*1777)), "its next frame")
			}
		})
		p.Place(NodeID(i))
		list = append(list, p)
	}
	return list
}

func ended(list []*Proc) func() bool {
	return func() bool { return !slices.ContainsFunc(list, func(p *Proc) bool { return !p.Done() }) }
}

// Whatever the number of workers and shards, all nodes see the same frames at the same times as in a
// network that is whole; also those that were in flight when it was divided, and when it was joined.
func TestShards(t *testing.T) {
	const nodes, end = 12, clock.Time(80 * time.Millisecond)
	run := func(shards, workers int) (logs [][]string, stats []LinkStats, events uint64) {
		net, list := circle(nodes)
		procs := threads(net, nodes)
		if err := net.RunUntil(clock.Time(4 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if shards > 0 {
			of := make([]int, nodes)
			for i := range of {
				of[i] = i % shards
			}
			s, err := net.Split(of)
			if err != nil {
				t.Fatal(err)
			}
			s.Eager = true
			if err := s.Run(crew(t, workers), ended(procs)); err != nil {
				t.Fatal(err)
			}
			if s.Windows() == 0 || s.Lookahead() < time.Millisecond {
				t.Errorf("%d windows of %v", s.Windows(), s.Lookahead())
			}
			s.Join()
			s.Join()
		}
		if err := net.RunUntil(end); err != nil {
			t.Fatal(err)
		}
		if !ended(procs)() {
			t.Error("a thread has not ended")
		}
		for _, r := range list {
			logs = append(logs, r.log)
		}
		for _, l := range net.Links() {
			stats = append(stats, l.Stats(fault.Up), l.Stats(fault.Down))
		}
		return logs, stats, net.Events()
	}
	want, wantStats, wantEvents := run(0, 0)
	if n := len(want[3]); n < 50 {
		t.Fatalf("node 3 has seen only %d events", n)
	}
	for _, c := range [][2]int{{1, 1}, {2, 1}, {2, 2}, {5, 3}, {12, 1}, {12, 4}} {
		logs, stats, events := run(c[0], c[1])
		if !reflect.DeepEqual(logs, want) || !reflect.DeepEqual(stats, wantStats) {
			t.Errorf("%d shards, %d workers: another result", c[0], c[1])
		}
		if events != wantEvents {
			t.Errorf("%d shards: %d events, want %d", c[0], events, wantEvents)
		}
	}
}

// A run ends with the error of a thread, of Stop, and of a run that cannot go on; the network is whole
// again afterwards.
func TestShardsEnd(t *testing.T) {
	split := func(t *testing.T, cfg Config) (*Net, *Shards) {
		net, _ := circle(4)
		net.cfg.MaxTime, net.cfg.MaxEvents = cfg.withTime(), cfg.withEvents()
		net.cfg.Cancelled = cfg.Cancelled
		s, err := net.Split([]int{0, 1, 0, 1})
		if err != nil {
			t.Fatal(err)
		}
		return net, s
	}
	never := func() bool { return false }
	for _, c := range []struct {
		name, want string
		cfg        Config
		stop       bool
		before     func(s *Shards)
	}{
		{name: "nothing left", want: "nothing is left to happen"},
		{name: "time", cfg: Config{MaxTime: 2000_000}, want: "would pass 2ms"},
		{name: "events", cfg: Config{MaxEvents: 30}, want: "more than 30 events"},
		{name: "cancelled", cfg: Config{Cancelled: func() bool { return true }}, want: ErrCancelled.Error()},
		{name: "stop", stop: true, want: "enough"},
		{name: "panic", before: func(s *Shards) { s.parts[1].Go("p", true, func(*Proc) { panic("oh") }) }, want: "client p panicked: oh"},
		{name: "call", before: func(s *Shards) {
			s.parts[1].Go("p", true, func(p *Proc) { p.net.At(0, func() {}) })
		}, want: "a call is scheduled while the network is divided"},
	} {
		t.Run(c.name, func(t *testing.T) {
			net, s := split(t, c.cfg)
			if c.before != nil {
				c.before(s)
			}
			w := crew(t, 2)
			if c.stop {
				w.Fail(errors.New("enough"))
			}
			if err := s.Run(w, never); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
			s.Join()
			net.Close()
		})
	}
}

func crew(t *testing.T, n int) *workers.Crew {
	c := workers.New(n)
	t.Cleanup(c.Close)
	return c
}

func (c Config) withTime() clock.Time {
	if c.MaxTime == 0 {
		return defaultMaxTime
	}
	return c.MaxTime
}

func (c Config) withEvents() uint64 {
	if c.MaxEvents == 0 {
		return defaultMaxEvents
	}
	return c.MaxEvents
}

func TestSplitRefuses(t *testing.T) {
	of := []int{0, 1, 0, 1}
	for _, c := range []struct {
		want string
		do   func(n *Net) []int
	}{
		{"4 nodes, and shards for 3", func(*Net) []int { return of[:3] }},
		{"a call is scheduled", func(n *Net) []int { n.At(5, func() {}); return of }},
		{"with a trace", func(n *Net) []int { n.cfg.Trace = func(*Event) {}; return of }},
		{"has no delay", func(n *Net) []int { n.links[0].up.cfg.Delay = 0; return of }},
		{"a running network", func(n *Net) []int { n.Begin(0); return of }},
	} {
		net, _ := circle(4)
		if _, err := net.Split(c.do(net)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v, want %q", err, c.want)
		}
	}
}
