package congestion

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Config is the congestion control of one NIC.
type Config struct {
	Params
	// Wake is how long the NIC's owner needs to wake up for a deadline: the length of a burst. 0, as in
	// the simulator, gives bursts of one packet.
	Wake time.Duration `json:"-"`
	// New makes the Controller of a queue pair; nil means the one that Params.Algorithm names.
	New func(p *Params) Controller `json:"-"`
}

// NewFlow makes the flow of a queue pair; nil if the algorithm is none. It keeps c: changes of its
// parameters apply at once.
func (c *Config) NewFlow() *Flow {
	of := c.New
	if of == nil {
		of = controllers[c.Algorithm]
	}
	if of == nil {
		return nil
	}
	f := &Flow{pace: Pacer{wake: c.Wake}, make: func() Controller { return of(&c.Params) }}
	f.Reset()
	return f
}

// controllers makes the Controller of each algorithm. AlgorithmNone has none. Register adds to it.
var controllers = map[string]func(p *Params) Controller{
	AlgorithmDCQCN:  func(p *Params) Controller { return p.NewDCQCN() },
	AlgorithmFixed:  func(p *Params) Controller { return NewFixed(&p.MaxRate) },
	AlgorithmNone:   nil,
	AlgorithmSwift:  func(p *Params) Controller { return p.NewSwift() },
	AlgorithmTimely: func(p *Params) Controller { return p.NewTimely() },
}

// Flow is the congestion control of one queue pair: its Controller and its pacer.
type Flow struct {
	c    Controller
	make func() Controller
	pace Pacer
	full bool // the last call of Ready has found the window full
	// measured: a packet is in flight whose acknowledgement gives a round-trip time. It was sent at
	// measuredAt.
	measured   bool
	measuredAt clock.Time
	stats      FlowStats
}

// FlowStats counts what a Flow has done.
type FlowStats struct {
	CNPs uint64 // CNPs that arrived
	// Sent are the paced packets, Bytes the length of their frames.
	Sent, Bytes uint64
	// Waits counts how often the queue pair had to wait for its rate.
	Waits uint64
}

// Reset makes a new Controller: the queue pair has a new connection.
func (f *Flow) Reset() {
	*f = Flow{make: f.make, pace: Pacer{wake: f.pace.wake}, c: f.make()}
}

// Ready reports whether the next packet may leave, with `flight` packets in flight. If it may not, At
// says when to ask again; an acknowledgement may make it ready earlier.
func (f *Flow) Ready(now clock.Time, flight int) bool {
	f.c.Tick(now)
	rate, window := f.c.Limit()
	f.full = window > 0 && flight > 0 && flight >= window
	if f.full || !f.pace.Ready(now, rate) {
		f.stats.Waits++
		return false
	}
	return true
}

// At returns when Ready must be asked again after it has said no: when the rate has made room, which
// may be at once, or when a timer of the Controller changes its window.
func (f *Flow) At() clock.Time {
	if f.full {
		return f.c.Deadline()
	}
	return f.pace.at
}

// Sent is called for a packet that leaves after Ready: n is the length of its frame in bytes.
func (f *Flow) Sent(now clock.Time, n int) {
	rate, _ := f.c.Limit()
	f.pace.Sent(n, rate)
	f.c.Sent(now, n)
	f.stats.Sent++
	f.stats.Bytes += uint64(n)
}

// Notified is called for a CNP.
func (f *Flow) Notified(now clock.Time) {
	f.stats.CNPs++
	f.c.Notified(now)
}

// Measure begins the measurement of a round-trip time with a packet that leaves now, and reports
// whether it has begun. It does not begin while another one lasts.
func (f *Flow) Measure(now clock.Time) bool {
	if f.measured {
		return false
	}
	f.measured, f.measuredAt = true, now
	return true
}

// Windowed reports whether the Controller limits the packets in flight.
func (f *Flow) Windowed() bool {
	_, window := f.c.Limit()
	return window > 0
}

// Acked is called when n packets were acknowledged, with frames of so many bytes each. arrived is true if
// the packet of Measure is among them.
func (f *Flow) Acked(now clock.Time, n, bytes int, arrived bool) {
	a := Ack{Packets: n, Bytes: n * bytes}
	if arrived && f.measured {
		a.RTT = now.Sub(f.measuredAt)
		f.measured = false
	}
	f.c.Acked(now, a)
}

// Lost is called when the queue pair begins to retransmit. It ends the measurement of a round-trip
// time: the acknowledgement could be that of either transmission.
func (f *Flow) Lost(now clock.Time, l Loss) {
	f.measured = false
	f.c.Lost(now, l)
}

// Slow reports whether n further packets of the length of the last burst take longer than d.
func (f *Flow) Slow(now clock.Time, n int, d time.Duration) bool {
	wait := f.pace.at.Sub(now)
	return wait > 0 && wait > d/time.Duration(n)
}

// FlowState is a Flow in a listing.
type FlowState struct {
	State
	FlowStats
	// Next is when the next burst may begin, Late how many bursts began late.
	Next clock.Time
	Late uint64
	// Window is the number of packets that may be in flight; 0 means no limit.
	Window int
}

// State returns the present state, after the timers that have expired.
func (f *Flow) State(now clock.Time) FlowState {
	f.c.Tick(now)
	rate, window := f.c.Limit()
	s := FlowState{State: State{Rate: rate, Target: rate}, FlowStats: f.stats, Next: f.pace.at, Late: f.pace.Late, Window: window}
	if c, ok := f.c.(Shower); ok {
		s.State = c.State()
	}
	return s
}
