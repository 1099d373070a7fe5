package published

import (
	"fmt"
	"math/bits"
	"reflect"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/dial"
	"github.com/rdmalab/rdmalab/swordbox/mode"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/rewrite"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Sizes of the tables, which are indexed by hashes. Each key has a tail as long as there is room; of two addresses of one place in
// the history the newer one stays.
const (
	tails   = 1 << 14
	history = 1 << 18
)

// Stats counts what a Machine did.
type Stats struct {
	Nodes          uint64 `name:"nodes" help:"data WRITEs of nodes"`
	Appends        uint64 `name:"appends"`
	SteeredAppends uint64 `name:"appends_steered"`
	Reads          uint64 `name:"reads" help:"READs of nodes that are known"`
	SteeredReads   uint64 `name:"reads_steered"`
	Repeated       uint64 `name:"retransmissions" help:"requests sent again, which go where their clients said"`
	Repairs        uint64 `name:"repairs" help:"appends without answer that the control plane has sent again, each try"`
	Repaired       uint64 `name:"chains_repaired" help:"of these, appends that had been lost"`
	Whole          uint64 `name:"chains_whole" help:"of these, appends that had arrived: their answers were lost"`
	RepairsFailed  uint64 `name:"repairs_failed" help:"connections of the control plane that were given up"`
	Unremembered   uint64 `name:"appends_unremembered" help:"appends without answer that were forgotten for want of room"`
	TooLate        uint64 `name:"repairs_too_late" help:"appends without answer that were forgotten because the control plane had no connection"`
}

// Config describes a Machine.
type Config struct {
	// Repair is after how long without an answer the control plane sends an append; 0: DefaultRepair.
	Repair time.Duration
	// Failed has a connection of the control plane made anew; nil: there is nobody who could.
	Failed func(c *pipeline.Ctx, k dial.Key, generation uint32, why string)
}

// Machine steers the requests under rules of action steer and mode paper. Make one with New.
type Machine struct {
	cfg     Config
	repair  repair
	tails   []tail
	history []was
	stats   Stats
}

// tail is the newest node of a key, as far as it was sent.
type tail struct {
	used bool
	key  uint64
	va   uint64
}

// was says to which key an address belonged.
type was struct {
	used bool
	va   uint64
	key  uint64
}

// row is the last data WRITE of a connection.
type row struct {
	written bool
	key, va uint64
}

var _ mode.Machine = (*Machine)(nil)

// New makes a Machine.
func New(cfg Config) *Machine {
	if cfg.Repair <= 0 {
		cfg.Repair = DefaultRepair
	}
	return &Machine{cfg: cfg}
}

// Name is what listings call the machine.
func (m *Machine) Name() string { return "steer paper" }

// Stats returns a copy of the counters.
func (m *Machine) Stats() Stats { return m.stats }

func mix(x uint64) uint64 {
	x = (x ^ x>>33) * 0xff51afd7ed558ccd
	x = (x ^ x>>33) * 0xc4ceb9fe1a85ec53
	return x ^ x>>33
}

// probes is how many places are looked at for a key.
const probes = 64

// tail finds the place of a key; nil if there is none left.
func (m *Machine) tail(key uint64) *tail {
	h := mix(key)
	for i := range uint64(probes) {
		if t := &m.tails[(h+i)%tails]; !t.used || t.key == key {
			return t
		}
	}
	return nil
}

func (m *Machine) was(va uint64) *was { return &m.history[mix(va)%history] }

// slab reports whether a length is that of a node.
func slab(n uint32) bool {
	return n >= layout.MinSlab && n <= layout.MaxSlab && bits.OnesCount32(n) == 1
}

// Request decides about a request.
func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	if s.Class == conntrack.Duplicate {
		m.stats.Repeated++
		return pipeline.Forward()
	}
	if s.Class == conntrack.New {
		s.Row.Advance(s.Span)
	}
	if r == nil || r.Action != rules.Steer {
		return pipeline.Forward()
	}
	if m.tails == nil {
		m.tails, m.history = make([]tail, tails), make([]was, history)
	}
	w, ok := s.Row.Ext.(*row)
	if !ok {
		w = &row{}
		s.Row.Ext = w
	}
	f := &p.Frame
	switch f.BTH.Opcode {
	case wire.RCWriteOnly, wire.RCWriteFirst: // hole 37 would be not to look at the first packet
		m.write(w, f)
	case wire.RCCmpSwap:
		v := m.swap(c, w, r, f)
		if s.Class == conntrack.New && w.written {
			m.remember(c.Now, s.Row, r.Server, f)
		}
		return v
	case wire.RCReadRequest:
		return m.read(c, r, f)
	default:
	}
	return pipeline.Forward()
}

func (m *Machine) write(w *row, f *wire.Frame) {
	key, ok := layout.KeyOf(f.Payload)
	if !ok || !slab(f.RETH.Length) {
		return
	}
	m.stats.Nodes++
	*w = row{true, key, f.RETH.VA}
	*m.was(f.RETH.VA) = was{true, f.RETH.VA, key}
}

func (m *Machine) swap(c *pipeline.Ctx, w *row, r *rules.Rule, f *wire.Frame) pipeline.Verdict {
	if !w.written || !r.HasKey(w.key) {
		return pipeline.Forward()
	}
	m.stats.Appends++
	t := m.tail(w.key)
	v := pipeline.Forward()
	if t == nil {
		return v
	}
	if asked := f.AtomicETH.VA; t.used && t.va != asked && r.Steer.Writes() {
		m.stats.SteeredAppends++
		f.AtomicETH.VA = t.va
		v = note(c, f, asked, t.va)
	}
	*t = tail{true, w.key, w.va}
	return v
}

func (m *Machine) read(c *pipeline.Ctx, r *rules.Rule, f *wire.Frame) pipeline.Verdict {
	asked := f.RETH.VA
	h := m.was(asked)
	if !slab(f.RETH.Length) || !h.used || h.va != asked {
		return pipeline.Forward()
	}
	m.stats.Reads++
	t := m.tail(h.key)
	if t == nil || !t.used || t.va == asked || !r.Steer.Reads() || !r.HasKey(h.key) {
		return pipeline.Forward()
	}
	m.stats.SteeredReads++
	f.RETH.VA = t.va
	return note(c, f, asked, t.va)
}

func note(c *pipeline.Ctx, f *wire.Frame, asked, to uint64) pipeline.Verdict {
	if !c.Observed() {
		return pipeline.Rewrite()
	}
	op, psn := f.BTH.Opcode, f.BTH.PSN
	return pipeline.Rewrite().With(rewrite.Note{From: op, To: op, PSN: psn, NewPSN: psn, Why: fmt.Sprintf("steered %#x→%#x", asked, to)}.String())
}

// Info lists the counters.
func (m *Machine) Info(clock.Time) mode.Info {
	info := mode.Info{Mode: rules.Paper}
	v := reflect.ValueOf(m.stats)
	for i := range v.NumField() {
		f := v.Type().Field(i)
		info.Counters = append(info.Counters, mode.Counter{Name: f.Tag.Get("name"), Value: v.Field(i).Uint(), Help: f.Tag.Get("help")})
	}
	return info
}

// Spec declares the tables.
func (m *Machine) Spec() ([]pipeline.TableSpec, []pipeline.RegisterSpec) {
	return nil, []pipeline.RegisterSpec{
		{Name: "published tails", Width: 1 + 64 + 64, Entries: tails},
		{Name: "published history", Width: 1 + 64 + 64, Entries: history},
		{Name: "published appends without answer", Width: 32 + 24 + 128 + 28*8 + 64, Entries: maxOpen},
	}
}
