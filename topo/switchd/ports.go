package switchd

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// ports holds the links of the switch and their interfaces. The loop owns it. Other goroutines use
// only opener, waking and open.
type ports struct {
	sw        *pipeline.Switch
	opener    func(i int, l Link) (packetio.Port, error)
	newWaiter func(spin time.Duration, ports []packetio.Port) (packetio.Waiter, error)
	spin      time.Duration
	queue     int // capacity of an egress queue in packets
	log       *slog.Logger
	queues    *queues // those of traffic
	trunks    *trunks // the switch as one of several; nil: it is the only one
	timers    timers
	strict    bool // what the network loses of trunks is a note

	links  []Link   // if a guest was removed, Host of its entry is ""
	hosts  []string // names of the links' hosts, in the order of links
	list   []port   // ports of the links, in the order of links
	filled []int    // ports in whose queues frames were put since the last flush
	waiter packetio.Waiter
	// waking is a copy of waiter. open is a copy of the ports, in the order of links. Other
	// goroutines use these copies.
	waking atomic.Pointer[packetio.Waiter]
	open   atomic.Pointer[[]opened]
}

// opened is a link and its port, as an element of the list that the loop publishes for the watcher
// (ports.open).
type opened struct {
	link Link
	io   packetio.Port // nil means that the port is missing
}

// port is what the daemon's loop knows of one link.
type port struct {
	io       packetio.Port // nil means that the port is missing
	err      error         // why the port is missing
	broken   error         // why Send has failed; the port is closed at the end of the flush
	carrier  bool
	up, down *fault.Injector
	queue    pipeline.Queue
	rx       packetio.Batch
	sent     [2]uint64 // packets and bytes that left the egress queue for the link
	dropped  uint64    // the last value of Stats.TxDropped of io
	rate     rate
	notes    []string // what is worth knowing of a trunk to another machine
}

// refused returns how many packets the link has refused since the last call; 0 if the port does not
// count them.
func (p *port) refused() int {
	st, ok := p.io.(stater)
	if !ok {
		return 0
	}
	before := p.dropped
	p.dropped = st.Stats().TxDropped
	return int(p.dropped - before)
}

// of returns the number of a host's port. The error wraps fault.ErrUnknownLink.
func (s *ports) of(host string) (int, error) {
	if i := slices.Index(s.hosts, host); i >= 0 && host != "" {
		return i, nil
	}
	names := slices.DeleteFunc(slices.Clone(s.hosts), func(name string) bool { return name == "" })
	return -1, fmt.Errorf("%w %.40q; %sthere are %s", fault.ErrUnknownLink, host, nearest.Meant(host, names), strings.Join(names, ", "))
}

// openPorts opens the ports that exist. It opens them concurrently, because each open takes tens of
// milliseconds in the kernel.
func (s *ports) openPorts() {
	type result struct {
		io  packetio.Port
		err error
	}
	results := make([]result, len(s.list))
	var wg sync.WaitGroup
	for i := range results {
		wg.Go(func() { results[i].io, results[i].err = s.opener(i, s.links[i]) })
	}
	wg.Wait()
	for i, r := range results {
		s.plug(i, r.io, r.err)
	}
}

// wake makes the loop stop waiting for frames.
func (s *ports) wake() {
	if w := s.waking.Load(); w != nil {
		(*w).Wake()
	}
}

// noWaiter is the text of the log when the loop goes on with the waiter for its former ports.
const noWaiter = "the loop waits for its former ports"

// levelOf returns the level at which the log says whether a link works.
func levelOf(up bool) slog.Level {
	if up {
		return slog.LevelInfo
	}
	return slog.LevelWarn
}

// plug makes io the port of link i. If err is not nil, plug records why the port is missing.
func (s *ports) plug(i int, io packetio.Port, err error) {
	p := &s.list[i]
	p.io, p.err, p.dropped = io, err, 0
	if err != nil {
		p.io = nil
		return
	}
	p.carrier = true
	if l, ok := io.(linker); ok {
		p.carrier = l.LinkUp()
	}
	s.sw.SetPort(i, p.carrier)
	s.log.Log(context.Background(), levelOf(p.carrier), "port is open", "port", s.links[i].Ifname, "link", s.hosts[i], "carrier", p.carrier)
}

// lost closes a port that failed, and marks its link as missing.
func (s *ports) lost(i int, err error) {
	p := &s.list[i]
	s.log.Warn("port is lost", "port", s.links[i].Ifname, "link", s.hosts[i], "error", err)
	if cerr := p.io.Close(); cerr != nil {
		s.log.Warn("close of a lost port", "port", s.links[i].Ifname, "link", s.hosts[i], "error", cerr)
	}
	p.io, p.err, p.carrier = nil, err, false
	s.sw.SetPort(i, false)
	s.sw.CountDrop(i, pipeline.ReasonPortDown, p.queue.Discard()+s.queues.lost(i))
	if err := s.renewWaiter(); err != nil {
		s.log.Error(noWaiter, "error", err)
	}
}

// renewWaiter replaces the loop's waiter by one for the ports that are open now.
func (s *ports) renewWaiter() error {
	var list []packetio.Port
	for i := range s.list {
		if s.list[i].io != nil {
			list = append(list, s.list[i].io)
		}
	}
	w, err := s.newWaiter(s.spin, list)
	if err != nil {
		return err
	}
	old := s.waiter
	s.waiter = w
	s.waking.Store(&w)
	s.timers.of(s.list)
	s.publish()
	if old != nil {
		return old.Close()
	}
	return nil
}

// publish stores a copy of the list of ports in s.open, where the watcher reads it.
func (s *ports) publish() {
	list := make([]opened, len(s.list))
	for i := range s.list {
		list[i] = opened{s.links[i], s.list[i].io}
	}
	s.open.Store(&list)
}

// closePorts closes all ports at the same time: the kernel waits for all processors at each close of a
// packet socket.
func (s *ports) closePorts() error {
	errs := make([]error, len(s.list))
	var closing sync.WaitGroup
	for i := range s.list {
		if p := &s.list[i]; p.io != nil {
			io := p.io
			closing.Go(func() { errs[i] = io.Close() })
			p.io = nil
		}
	}
	closing.Wait()
	return errors.Join(errs...)
}

// setCarrier sets whether the link of port io is up. It does nothing if the port was lost or
// replaced meanwhile.
func (s *ports) setCarrier(i int, io packetio.Port, up bool) {
	p := &s.list[i]
	if p.io != io || p.carrier == up {
		return
	}
	p.carrier = up
	s.sw.SetPort(i, up)
	s.log.Log(context.Background(), levelOf(up), "carrier of a port", "port", s.links[i].Ifname, "link", s.hosts[i], "carrier", up)
}

func (s *ports) takeRates() {
	s.notes()
	now := time.Now()
	for i := range s.list {
		p := &s.list[i]
		c := s.sw.Port(i)
		cur := [4]uint64{c.RxPackets, c.RxBytes, p.sent[0], p.sent[1]}
		r := &p.rate
		if s := now.Sub(r.at).Seconds(); !r.at.IsZero() && s > 0 {
			per := func(k int) uint64 { return uint64(float64(cur[k]-r.last[k])/s + 0.5) }
			r.rxPackets, r.rxBits, r.txPackets, r.txBits = per(0), 8*per(1), per(2), 8*per(3)
		}
		r.at, r.last = now, cur
	}
}
