package engine

import (
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Engine is a NIC. Its zero value is of no use; call New.
type Engine struct {
	cfg      Config
	counters metrics.NIC
	up       bool
	linkDown bool
	ipID     uint16
	activity uint64
	async    events

	// Tables of this incarnation; Down replaces them all.
	env     *transport.Env
	pds     map[mem.PD]*PD
	mrs     map[*MR]struct{}
	cqs     map[uint32]*CQ
	nextCQ  uint32
	qps     map[wire.QPN]*QP
	ahs     map[uint32]*AH
	nextAH  uint32
	srqs    map[uint32]*SRQ
	nextSRQ uint32
	mws     map[*MW]struct{}
	dms     map[*DM]struct{}
	dmUsed  int   // bytes of device memory
	order   []*QP // in order of creation: whatever visits all queue pairs does so deterministically

	gsi *GSI // nil until somebody needs it

	due clock.Queue
	// touched are queue pairs whose deadline and held-back ACK wait for the end of the receive batch; batchAt is
	// when the oldest of them was touched.
	touched []*QP
	batchAt clock.Time
	served  wire.QPN // last queue pair that Tick served

	// Scratch of one step.
	acts       transport.Actions
	rx, tx     wire.Frame
	segment    []byte // a packet of a super-frame
	overflowed []*CQ
	ready      []*QP
	// loop are packets from this NIC to itself; loopRx is the batch that is being delivered.
	loop, loopRx packetio.Batch
}

// New returns a NIC that is up.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	e := &Engine{cfg: cfg, ipID: uint16(cfg.Rand.Uint32()), async: events{limit: cfg.Limits.AsyncEvents}}
	e.Up()
	return e, nil
}

// Up starts a NIC that is down, with empty tables. Counters go on.
func (e *Engine) Up() {
	if e.up {
		return
	}
	e.up = true
	table := mem.New(rand.New(rand.NewPCG(e.cfg.Rand.Uint64(), e.cfg.Rand.Uint64())), e.cfg.Limits.MRs)
	e.env = &transport.Env{Mem: table, Counters: &e.counters}
	e.pds = make(map[mem.PD]*PD)
	e.mrs = make(map[*MR]struct{})
	e.cqs = make(map[uint32]*CQ)
	e.qps = make(map[wire.QPN]*QP)
	e.ahs = make(map[uint32]*AH)
	e.srqs = make(map[uint32]*SRQ)
	e.mws = make(map[*MW]struct{})
	e.dms = make(map[*DM]struct{})
	e.dmUsed = 0
}

// Down is a crash of the NIC: all objects are dead from here on and frames are ignored until Up. Nobody gets a
// completion; the application sees EventDeviceFatal, and ErrClosed from every object.
func (e *Engine) Down() {
	if !e.up {
		return
	}
	e.up = false
	for _, pd := range e.pds {
		pd.dead = true
	}
	for mr := range e.mrs {
		mr.dead = true
	}
	for _, c := range e.cqs {
		c.dead = true
	}
	for _, qp := range e.order {
		qp.dead = true
	}
	for _, ah := range e.ahs {
		ah.dead = true
	}
	for _, s := range e.srqs {
		s.dead = true
	}
	for mw := range e.mws {
		mw.dead = true
	}
	for dm := range e.dms {
		dm.dead = true
	}
	e.mws, e.dms = nil, nil
	e.pds, e.mrs, e.cqs, e.qps, e.ahs, e.srqs, e.env = nil, nil, nil, nil, nil, nil, nil
	e.order, e.touched = nil, nil
	e.gsiDown()
	e.due = clock.Queue{}
	e.loop.Reset()
	e.async.ring = e.async.ring[:0]
	e.raise(verbs.AsyncEvent{Kind: verbs.EventDeviceFatal})
}

// IsUp reports whether the NIC works.
func (e *Engine) IsUp() bool { return e.up }

// SetLink tells the NIC whether its port has a carrier. It only counts and raises events: what is sent without a
// carrier is lost, and retried as any loss.
func (e *Engine) SetLink(up bool) {
	if e.linkDown == !up {
		return
	}
	e.linkDown = !up
	kind := verbs.EventPortActive
	if !up {
		kind = verbs.EventPortErr
		e.counters.LinkDowned++
	}
	e.raise(verbs.AsyncEvent{Kind: kind})
}

// LinkUp reports the carrier as SetLink last said; a new NIC assumes one.
func (e *Engine) LinkUp() bool { return !e.linkDown }

// Activity changes when a completion was delivered, an asynchronous event was raised or objects died.
func (e *Engine) Activity() uint64 { return e.activity }

// Notify changes Activity, so that a body asks its waiting applications again.
func (e *Engine) Notify() { e.activity++ }

// Counters returns the NIC's counters. The pointer is for the owner of the engine; others get a copy of it.
func (e *Engine) Counters() *metrics.NIC { return &e.counters }

// Mem returns the table of regions, for the tear plan of a fault. It is nil while the NIC is down.
func (e *Engine) Mem() *mem.Table {
	if e.env == nil {
		return nil
	}
	return e.env.Mem
}

// Config returns the configuration with its defaults.
func (e *Engine) Config() Config { return e.cfg }

// Device describes the NIC to applications.
func (e *Engine) Device() verbs.DeviceAttr {
	l := e.cfg.Limits
	return verbs.DeviceAttr{
		Name: e.cfg.Name, GIDs: append([]verbs.GID(nil), e.cfg.GIDs...), MAC: e.cfg.MAC, LinkMTU: e.cfg.LinkMTU, ActiveMTU: e.activeMTU(),
		MaxQP: l.QPs, MaxQPWR: l.QPWR, MaxSGE: l.SGE, MaxInline: l.Inline, MaxCQE: l.CQE,
		MaxSRQ: l.SRQs, MaxAH: l.AHs, MaxRdAtomic: l.RdAtomic,
		MaxMsgSize: maxMsgSize, MaxDM: l.DeviceMemory,
	}
}
