package engine

import (
	"math/rand/v2"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/transport"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Engine is a NIC. New makes one; the zero value cannot be used.
type Engine struct {
	cfg    Config
	Tables tables
	Events events
	Port   port
	// Hooks are set by who has exclusive use of the engine.
	Hooks Hooks

	counters metrics.NIC
	gsi      *GSI // general services queue pair; nil until the connection manager is used

	rx         receivePath
	tx         transmitPath
	sched      schedule
	moderated  moderated
	rings      rings
	former     former
	verbFaults verbFaults
	notifier   notifier

	// acts collects the actions of the present step of a queue pair. overflowed lists the
	// completion queues that have overflowed in this step.
	acts       transport.Actions
	overflowed []*CQ
}

// New returns a NIC in the state up.
func New(cfg Config) (*Engine, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	cfg = cfg.withDefaults()
	e := &Engine{
		cfg: cfg, tx: transmitPath{ipID: uint16(cfg.Rand.Uint32()), trimAt: clock.Never}, Events: events{limit: cfg.Limits.AsyncEvents},
	}
	e.Port.cfg = &e.cfg
	if cfg.Open {
		e.tx.pages = packetio.NewPages()
		e.acts.Payloads = e.tx.pages
	}
	e.Up()
	return e, nil
}

// Up starts a NIC that is down, with empty tables. The counters keep their values.
func (e *Engine) Up() {
	if e.Tables.up {
		return
	}
	r := e.cfg.Rand
	table := mem.New
	if e.cfg.DistinctKeys {
		table = mem.NewDistinct
	}
	e.Tables.open(&transport.Env{Mem: table(rand.New(rand.NewPCG(r.Uint64(), r.Uint64())), e.cfg.Limits.MRs), Counters: &e.counters})
	e.Tables.groups.open(&e.Port, &e.counters)
}

// Down is a crash of the NIC at time now: all objects become invalid, and frames are ignored until Up. Work
// requests do not complete; the application gets EventDeviceFatal, and ErrClosed from every object.
func (e *Engine) Down(now clock.Time) {
	if !e.Tables.up {
		return
	}
	for _, qp := range e.Tables.order {
		qp.q.Lost(now)
		e.former.retire(qp)
	}
	e.Tables.close()
	e.rx.touched = nil
	e.gsi.down()
	e.gsi = nil
	e.sched.agenda, e.moderated = agenda[QP]{}, moderated{}
	e.rings = rings{}
	e.tx.loop.Reset()
	e.tx.late = nil
	e.tx.trimAt = clock.Never
	e.verbFaults.close()
	e.Events.ring = e.Events.ring[:0]
	e.raise(verbs.AsyncEvent{Kind: verbs.EventDeviceFatal})
}

// SetLink sets whether the port has a carrier. It raises an event, counts a lost carrier, and makes
// the NIC report its multicast groups when the carrier is back. Packets sent without a carrier are
// lost on the link, and retransmitted like other lost packets.
func (e *Engine) SetLink(up bool) {
	if e.Port.linkDown == !up {
		return
	}
	e.Port.linkDown = !up
	kind := verbs.EventPortActive
	if up {
		e.Tables.groups.announce()
	} else {
		kind = verbs.EventPortErr
		e.counters.LinkDowned++
	}
	e.raise(verbs.AsyncEvent{Kind: kind})
}

// SetGIDs replaces the table of the port's addresses and raises an event. A zero GID is a free entry.
// Queue pairs that are connected keep their address.
func (e *Engine) SetGIDs(gids []verbs.GID) {
	if slices.Equal(e.cfg.GIDs, gids) {
		return
	}
	e.cfg.GIDs = slices.Clone(gids)
	e.raise(verbs.AsyncEvent{Kind: verbs.EventGIDChange})
}

// Counters returns the NIC's counters. Only the owner of the engine may use the pointer; other
// goroutines need a copy.
func (e *Engine) Counters() *metrics.NIC { return &e.counters }

// Config returns the configuration with its defaults.
func (e *Engine) Config() Config { return e.cfg }

func (e *Engine) Device() verbs.DeviceAttr {
	l := e.cfg.Limits
	return verbs.DeviceAttr{
		Name: e.cfg.Name, GIDs: append([]verbs.GID(nil), e.cfg.GIDs...), PortDown: e.Port.linkDown, PortDisabled: e.Port.disabled, MAC: e.cfg.MAC, LinkMTU: e.cfg.LinkMTU, ActiveMTU: e.Port.activeMTU(),
		MaxQP: l.QPs, MaxQPWR: l.QPWR, MaxSGE: l.SGE, MaxInline: l.Inline, MaxCQE: l.CQE,
		MaxSRQ: l.SRQs, MaxAH: l.AHs, MaxRdAtomic: l.RdAtomic, Ahead: e.cfg.Recovery.Reach(e.cfg.Window),
		PKeys: append([]uint16(nil), e.cfg.PKeys...), MaxMsgSize: transport.MaxMessage, MaxDM: l.DeviceMemory,
		GroupLimits: verbs.GroupLimits{MaxAttachments: l.Attachments, MaxGroupQPs: l.GroupQPs},
	}
}
