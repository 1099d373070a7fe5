package simrack

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/workers"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Recovery is how queue pairs recover from losses. Kind go-back-N means the kind of the host's key recovery.
type Recovery struct {
	transport.Recovery
	// AckEvery is how many request packets of a queue pair leave for one that asks for an
	// acknowledgement; 0 means the engine's default.
	AckEvery int
	// Acks is the key acks of hosts with role memory that have none.
	Acks int
}

// Options are settings of a simulated rack that a rack file does not contain. The zero value is
// usable.
type Options struct {
	// Seed decides memory addresses, keys, queue pair numbers, first PSNs and faults; 0 means the
	// rack's seed.
	Seed uint64
	// Delay is the delay of each link; 0 means one microsecond.
	Delay time.Duration
	// Rate is the rate of each link in bits per second; 0 means unlimited.
	Rate int64
	// Queue is how many frames may wait for a link with a Rate; 0 means 1024, or more with Cost.
	Queue int
	// Window is how many packets of a queue pair may be in flight; 0 means the host's Window.
	Window int
	// Recovery is how queue pairs recover from losses.
	Recovery Recovery
	// Loopback is how long a packet takes from a NIC to itself; 0 means no time, or, with Cost,
	// half the time that a READ takes in the NIC.
	Loopback time.Duration
	// CMTimeout is the code of the time after which a connection manager sends a message again that
	// was not answered: 4.096 µs · 2^CMTimeout; 0 means the engine's default.
	CMTimeout uint8
	// FirstPSN, if not nil, chooses the first PSN of each side of each connection.
	FirstPSN func(r *rand.Rand) wire.PSN
	// Cost gives NICs, links, switch and clients the speed of real hardware; nil means that only
	// links take time. With Cost, the link costs of the model are the defaults of Delay and Rate,
	// and the default of Queue is so large that no frame is lost because a queue is full.
	Cost *cost.Model
	// Datagrams is true if Host.Manager connects by the NICs' connection managers, whose datagrams
	// cross the links and are subject to the links' faults. With false, connections are made as
	// over TCP.
	Datagrams bool
	// Nodes is how many nodes of a store the switch remembers when it steers requests; 0 means the
	// switch's default.
	Nodes int
	// Transits is true if the rack measures how long requests are inside the switch (kv.Switched). A rack
	// with several switches does not.
	Transits bool
	// MaxEvents, MaxTime, Trace and Cancelled have the meaning of the fields of simnet.Config.
	MaxEvents uint64
	MaxTime   clock.Time
	Trace     func(*simnet.Event)
	Cancelled func() bool
	// Program, if not nil, makes the switch's program instead of the one that the rack file names.
	Program func(s *rackfile.Rack) (pipeline.Program, error)
	// Controller, if not nil, makes the congestion control of each queue pair on hosts whose rack file
	// has congestion control, instead of the one that the file names.
	Controller func(p *congestion.Params) congestion.Controller
	// Wrap, if not nil, may put a node around a host or the switch. Tests plant bugs with it.
	Wrap func(name string, n simnet.Node) simnet.Node
}

const defaultDelay = time.Microsecond

func (o *Options) withDefaults() error {
	if o.Cost != nil {
		if err := o.Cost.Validate(); err != nil {
			return err
		}
		o.Delay = cmp.Or(o.Delay, o.Cost.Link.Delay)
		o.Rate = cmp.Or(o.Rate, o.Cost.Link.Rate)
		o.Loopback = cmp.Or(o.Loopback, o.Cost.NIC.Read.Latency.Host/2) // the latency of a READ includes both directions
		o.Queue = cmp.Or(o.Queue, losslessQueue)
		return nil
	}
	o.Delay = cmp.Or(o.Delay, defaultDelay)
	return nil
}

// losslessQueue is so large that no frame is lost. This has the effect of flow control in a RoCE
// rack, where a sender that is too fast waits.
const losslessQueue = 1 << 16

// Rack is a rack in virtual time. Only one goroutine may use it at a time.
type Rack struct {
	Spec   *rackfile.Rack
	opt    Options
	net    *simnet.Net
	hosts  []*Host
	fabric fabric
	seed   uint64
	// crowd is the applications that are to run apart; apart is the shards while they do, and crew runs
	// them. windows counts theirs.
	crowd   *crowd
	apart   *simnet.Shards
	crew    *workers.Crew
	windows uint64
	eager   bool // for tests: simnet.Shards.Eager
	// transits measures the times inside the switch; nil if Options.Transits is false.
	transits *transits
}

// New builds a rack. All of its parts are up, and no application runs.
func New(s *rackfile.Rack, opt Options) (*Rack, error) {
	if err := opt.withDefaults(); err != nil {
		return nil, err
	}
	if s.HasNICs() {
		return nil, errors.New("a host of the simulator has one NIC: leave out `nics` in the rack file, or use a rack (`rdmalab up`)")
	}
	r := &Rack{Spec: s, opt: opt, seed: cmp.Or(opt.Seed, s.Seed)}
	r.net = simnet.New(simnet.Config{MaxEvents: opt.MaxEvents, MaxTime: opt.MaxTime, Trace: opt.Trace, Cancelled: opt.Cancelled})
	if opt.Transits && s.Fabric == nil {
		r.transits = &transits{rack: r, threads: map[*simnet.Proc]*thread{}, conns: map[connID]*connection{}, ends: map[end]connID{}}
	}
	r.fabric.rack = r
	if err := r.fabric.build(); err != nil {
		return nil, err
	}
	for i := range s.Hosts {
		if err := r.addHost(i); err != nil {
			return nil, fmt.Errorf("host %s: %w", s.Hosts[i].Name, err)
		}
	}
	for _, b := range r.fabric.boxes {
		if err := b.queue(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// Kinds of parts that draw random numbers. Every part of the rack has a stream of random numbers
// for itself (see Rack.rand), so that a change in one part does not change those of other parts.
const (
	laneEngine = 1 + iota
	laneApp
	laneTear
	laneSwitch
)

// rand returns the random number generator of one part of the rack. lane is the kind of the part,
// and index is its number among the parts of this kind.
func (r *Rack) rand(lane, index int) *rand.Rand {
	return rand.New(rand.NewPCG(r.seed, uint64(lane)<<32|uint64(index)))
}

func (r *Rack) wrap(name string, n simnet.Node) simnet.Node {
	if r.opt.Wrap == nil {
		return n
	}
	return r.opt.Wrap(name, n)
}

// addHost makes the host of entry i of the rack file, and its link.
func (r *Rack) addHost(i int) error {
	hs := &r.Spec.Hosts[i]
	h := &Host{Spec: hs, rack: r, index: i, listeners: make(map[string]*listener)}
	eng, err := r.newEngine(i)
	if err != nil {
		return err
	}
	h.eng = eng
	h.tear()
	h.node = r.net.Add(hs.Name, r.wrap(hs.Name, h))
	b := r.fabric.box(r.Spec.LeafOf(hs))
	queues, err := r.nicQueues(hs)
	if err != nil {
		return err
	}
	h.charge()
	h.link = r.net.Connect(r.linkTo(b, hs.Name, simnet.End{Node: h.node}))
	r.net.SetQueues(h.node, queues)
	r.hosts = append(r.hosts, h)
	h.SetFaults(r.Spec.Faults)
	return nil
}

func (r *Rack) newEngine(i int) (*engine.Engine, error) {
	hs := &r.Spec.Hosts[i]
	recovery := r.opt.Recovery.Recovery
	recovery.Kind = cmp.Or(recovery.Kind, hs.RecoveryKind())
	acks := hs.NIC.Acks
	if acks == 0 && hs.Role == rackfile.Memory {
		acks = r.opt.Recovery.Acks
	}
	return engine.New(engine.Config{
		Name: hs.Name, MAC: hs.MAC, LinkMTU: r.Spec.LinkMTU, GIDs: gids(hs), Rand: r.rand(laneEngine, i),
		Resolve: r.Spec.Neighbour, Window: cmp.Or(r.opt.Window, hs.Window), Acks: engine.Acks{Every: r.opt.Recovery.AckEvery, Most: acks}, Recovery: recovery, CMTimeout: r.opt.CMTimeout, PKeys: hs.PKeys, TOS: hs.TOS, Loopback: r.opt.Loopback, RingPaced: r.opt.Cost != nil, RingCosts: r.opt.Cost.Rings(),
		Congestion: r.congestion(hs), DistinctKeys: true, // an application that takes one key for the other is to fail here
	})
}

// congestion returns the congestion control of a host's NIC; nil means none. Deadlines are exact, so
// that each packet is a burst.
func (r *Rack) congestion(h *rackfile.Host) *congestion.Config {
	if h.Congestion == nil {
		return nil
	}
	return &congestion.Config{Params: *h.Congestion, New: r.opt.Controller}
}

// Host returns the host called name; nil if there is none.
func (r *Rack) Host(name string) *Host {
	if _, i, ok := r.Spec.Host(name); ok {
		return r.hosts[i]
	}
	return nil
}

func (r *Rack) Now() clock.Time { return r.net.Now() }

func (r *Rack) Events() uint64 { return r.net.Events() }

// At calls f at a virtual time. f may call methods of Rack and Host that do not wait.
func (r *Rack) At(t clock.Time, f func()) { r.net.At(t, f) }

// Settle runs the rack for the virtual time d. It is called after Run has returned, so that frames
// in flight arrive.
func (r *Rack) Settle(d time.Duration) error { return r.net.RunUntil(r.net.Now().Add(d)) }

// Close ends the threads that are left. The rack cannot be used afterwards.
func (r *Rack) Close() { r.net.Close() }

// injectors returns the functions that decide about the frames of both directions of a link by the
// fault rules; nil means that no rule is for that direction.
func (r *Rack) injectors(link string, rules []fault.Rule) (up, down simnet.Verdict) {
	one := func(d fault.Dir) simnet.Verdict {
		in := fault.NewInjector(r.seed, link, d, rules)
		if !in.Active() {
			return nil
		}
		return in.Frame
	}
	return one(fault.Up), one(fault.Down)
}

// Hosts lists all hosts, in the order of the rack file.
func (r *Rack) Hosts() []*Host { return r.hosts }

// cardTiming is the simnet.Timing of a host's NIC, by the cost model of the NIC.
type cardTiming struct{ card *cost.Card }

func (t cardTiming) Begin(now clock.Time, _ int, frame []byte) clock.Time {
	return t.card.Begin(now, frame)
}

func (t cardTiming) Arrive(now clock.Time, _ int, frame []byte) clock.Time {
	return t.card.Arrive(now, frame)
}

// Depart returns the time at which a frame leaves the NIC. For a frame that was made in a call of
// an application (cause.Step), this includes the time for posting the request.
func (t cardTiming) Depart(now clock.Time, _ int, frame []byte, cause simnet.Cause) clock.Time {
	return t.card.Depart(now, frame, cause.Step)
}

// boxTiming is the simnet.Timing of the switch, by the cost model of the switch. If box is nil, frames
// take no time there. transits, which may be nil, measures their times.
type boxTiming struct {
	box      *cost.Box
	transits *transits
}

// Begin returns now, because ports of the switch are in order.
func (t boxTiming) Begin(now clock.Time, _ int, _ []byte) clock.Time { return now }

// Arrive returns now, because in the cost model all costs of the switch come after its program.
func (t boxTiming) Arrive(now clock.Time, _ int, frame []byte) clock.Time {
	t.transits.arrive(now, frame)
	return now
}

func (t boxTiming) Depart(now clock.Time, _ int, frame []byte, cause simnet.Cause) clock.Time {
	at := now
	if t.box != nil {
		at = t.box.Depart(now, frame, cause.Frame)
	}
	t.transits.depart(at, frame)
	return at
}

// charge makes the work of the host's NIC take the time that the rack's cost model says, if the
// rack has one. The NIC begins without work in progress.
func (h *Host) charge() {
	if h.rack.opt.Cost == nil {
		return
	}
	h.card = h.rack.opt.Cost.NIC.NewCard(h.locate, h.rack.seed+uint64(h.index))
	h.rack.net.SetTiming(h.node, cardTiming{h.card})
}

// locate returns the memory that a request names, or false if there is none. It is a cost.Memory.
func (h *Host) locate(rkey uint32, va uint64, n int) ([]byte, bool) {
	t := h.eng.Tables.Mem()
	if t == nil {
		return nil, false
	}
	return t.Locate(rkey, va, n)
}
