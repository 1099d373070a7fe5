package cloversteer

import (
	"cmp"
	"fmt"
	"math/bits"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// history is the number of places in the table of history, which says to which key the node at an
// address belongs. A hash of the address selects the place. If two addresses have the same place,
// the newer one replaces the older one.
const history = 1 << 18

// Stats counts what a Machine did.
type Stats struct {
	Nodes          uint64 `name:"nodes" help:"data WRITEs of nodes"`
	Appends        uint64 `name:"appends" help:"CMP_SWAPs on nodes by clients that have written a node of a selected key before"`
	SteeredAppends uint64 `name:"appends_steered" help:"appends sent to the newest node of their key instead of the node that the client named"`
	Reads          uint64 `name:"reads" help:"READs of nodes in the table of history"`
	SteeredReads   uint64 `name:"reads_steered" help:"READs sent to the newest node of their key instead of the node that the client named"`
	Repeated       uint64 `name:"retransmissions" help:"retransmissions of requests; they change no table"`
	Reapplied      uint64 `name:"retransmissions_steered" help:"retransmissions sent again to the node to which the first copy was steered"`
	Repairs        uint64 `name:"repairs" help:"transmissions of unanswered appends by the control plane"`
	Repaired       uint64 `name:"chains_repaired" help:"repaired appends that had been lost"`
	Whole          uint64 `name:"chains_whole" help:"repaired appends that had arrived: only their answers were lost"`
	RepairsFailed  uint64 `name:"repairs_failed" help:"connections of the control plane that failed"`
	Unremembered   uint64 `name:"appends_unremembered" help:"unanswered appends forgotten because the list was full"`
	TooLate        uint64 `name:"repairs_too_late" help:"unanswered appends forgotten because the control plane had no connection for too long"`
}

type Config struct {
	// Repair is how long the control plane waits for the answer to an append before it sends the
	// append again; 0 means DefaultRepair.
	Repair time.Duration
	// Failed makes the program replace a connection of the control plane; nil means that it is not
	// replaced.
	Failed func(c *pipeline.Ctx, k switchconn.Key, generation uint32, why string)
}

// Machine steers the requests under published rules of action steer: it sends appends and READs of
// Clover to the newest node of their key. Make one with New.
type Machine struct {
	cfg    Config
	repair repair
	// tails are the registers for the newest nodes of keys. There are as many as the largest number
	// that a rule asks for, and at least rules.DefaultRegisters.
	tails   []tail
	history []was
	// scopes holds the scope of each rule, in the order of the rules. The first rule that selects a
	// request applies.
	scopes  []scope
	changes uint32 // how often scopes has changed
	stats   Stats
}

// tail is a register. It holds the newest node of the keys that share it, as the switch concludes
// from the appends that it has forwarded.
type tail struct {
	used bool
	va   uint64
}

// was records to which key the node at an address belonged when the switch saw its data WRITE.
type was struct {
	used bool
	va   uint64
	key  uint64
}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.RuleUser = (*Machine)(nil)
)

func New(cfg Config) *Machine {
	cfg.Repair = cmp.Or(max(0, cfg.Repair), DefaultRepair)
	return &Machine{cfg: cfg, tails: make([]tail, rules.DefaultRegisters)}
}

// scope says which requests a rule selects, and whether the machine handles them.
type scope struct {
	server netip.Addr
	also   string
	rkey   uint32
	from   uint64
	to     uint64
	served bool
}

// SetRules makes as many registers as the rules ask for. If the number of registers changes, the
// machine forgets all tails. If the rules select other requests than before, the machine may have
// missed requests: it forgets all tails, to which keys nodes belong, and what it knows of connections.
func (m *Machine) SetRules(set *rules.Set) {
	n, scopes := rules.DefaultRegisters, []scope(nil)
	for i := range set.All() {
		r := &set.All()[i]
		n = max(n, r.NumRegisters())
		scopes = append(scopes, scope{r.Server, fmt.Sprint(r.Also), r.RKey, r.From, r.To, Kind.Serves(r)})
	}
	same := slices.Equal(scopes, m.scopes)
	if n != len(m.tails) || !same {
		m.tails = make([]tail, n)
	}
	if !same {
		m.history = nil
		m.changes++
	}
	m.scopes = scopes
}

func (m *Machine) Stats() Stats { return m.stats }

// tail returns the register of a key; it may be unused. Keys with the same remainder modulo the
// number of registers share a register (hole 46).
func (m *Machine) tail(r *rules.Rule, key uint64) *tail {
	return &m.tails[key%uint64(r.NumRegisters())]
}

func (m *Machine) was(va uint64) *was { return &m.history[pipeline.Hash(va)%history] }

// slab reports whether n bytes can be the length of a node.
func slab(n uint32) bool {
	return n >= layout.MinSlab && n <= layout.MaxSlab && bits.OnesCount32(n) == 1
}

func (m *Machine) Request(c *pipeline.Ctx, s conntrack.Seen, r *rules.Rule, p *pipeline.Parsed) pipeline.Verdict {
	if s.Class == conntrack.New {
		s.Flow.Advance(s.Span)
	}
	selected := r != nil && r.Action == rules.Steer
	f := &p.Frame
	w := m.trackOf(s.Flow, f.UDP.SrcPort, selected)
	if w == nil {
		return pipeline.Forward()
	}
	if w.again(f.BTH.PSN, s.Span) {
		return m.again(c, w, f)
	}
	if !selected {
		return pipeline.Forward()
	}
	if m.history == nil {
		m.history = make([]was, history)
	}
	switch f.BTH.Opcode {
	case wire.RCWriteOnly, wire.RCWriteFirst: // a machine that ignored WRITE_FIRST would have hole 37
		m.write(&w.last, f)
	case wire.RCCmpSwap:
		asked := f.AtomicETH.VA
		v := m.swap(c, &w.last, r, f)
		*w.at(f.BTH.PSN) = steered{f.BTH.PSN, asked, f.AtomicETH.VA}
		if s.Class == conntrack.New && w.last.written {
			m.remember(c.Now, s.Flow, r.Server, f)
		}
		return v
	case wire.RCReadRequest:
		asked := f.RETH.VA
		v := m.read(c, r, f)
		*w.at(f.BTH.PSN) = steered{f.BTH.PSN, asked, f.RETH.VA}
		return v
	default:
	}
	return pipeline.Forward()
}

// again handles a retransmission. It changes no table, and sends the request where its first copy
// went (hole 32). A retransmission that the switch does not remember goes where its client named:
// after a restart of the switch, when later requests have taken its place, and for a part of a READ
// of several packets (hole 37).
func (m *Machine) again(c *pipeline.Ctx, w *track, f *wire.Frame) pipeline.Verdict {
	m.stats.Repeated++
	va := &f.RETH.VA
	switch f.BTH.Opcode {
	case wire.RCCmpSwap:
		va = &f.AtomicETH.VA
	case wire.RCReadRequest:
	default:
		return pipeline.Forward()
	}
	t := w.at(f.BTH.PSN)
	if t.psn != f.BTH.PSN || t.asked != *va || t.to == t.asked {
		return pipeline.Forward()
	}
	m.stats.Reapplied++
	*va = t.to
	return note(c, f, t.asked, t.to)
}

func (m *Machine) write(w *node, f *wire.Frame) {
	key, ok := layout.KeyOf(f.Payload)
	if !ok || !slab(f.RETH.Length) {
		return
	}
	m.stats.Nodes++
	*w = node{true, key, f.RETH.VA}
	*m.was(f.RETH.VA) = was{true, f.RETH.VA, key}
}

func (m *Machine) swap(c *pipeline.Ctx, w *node, r *rules.Rule, f *wire.Frame) pipeline.Verdict {
	if !w.written || !r.HasKey(w.key) {
		return pipeline.Forward()
	}
	m.stats.Appends++
	t := m.tail(r, w.key)
	v := pipeline.Forward()
	if asked := f.AtomicETH.VA; t.used && t.va != asked && r.Steer.Writes() {
		m.stats.SteeredAppends++
		f.AtomicETH.VA = t.va
		v = note(c, f, asked, t.va)
	}
	*t = tail{true, w.va}
	return v
}

func (m *Machine) read(c *pipeline.Ctx, r *rules.Rule, f *wire.Frame) pipeline.Verdict {
	asked := f.RETH.VA
	h := m.was(asked)
	if !slab(f.RETH.Length) || !h.used || h.va != asked {
		return pipeline.Forward()
	}
	m.stats.Reads++
	t := m.tail(r, h.key)
	if !t.used || t.va == asked || !r.Steer.Reads() || !r.HasKey(h.key) {
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
	return pipeline.Rewrite().With(transform.Note{From: op, To: op, PSN: psn, NewPSN: psn, Why: fmt.Sprintf("steered %#x→%#x", asked, to)}.String())
}

func (m *Machine) Info(clock.Time) handler.Info {
	return handler.Info{Mode: rules.Published, Counters: handler.Counters("", m.stats)}
}

func (m *Machine) Spec() pipeline.Part {
	const connections = 512 // clients of the paper's chip, with one connection each
	return pipeline.Part{
		Tables: []pipeline.TableSpec{
			// Two addresses, the queue pair and the UDP source port give the number of the connection.
			{Name: "published connections", KeyBits: 2*32 + 24 + 16, ValueBits: 9, Entries: connections, Learned: true},
		},
		Registers: []pipeline.RegisterSpec{
			{Name: "published tails", Width: 1 + 64, Entries: len(m.tails)},
			{Name: "published history", Width: 1 + 64 + 64, Entries: history},
			{Name: "published incoming psn", Width: 1 + 24, Entries: connections},
			{Name: "published last writes", Width: 1 + 64 + 64, Entries: connections},
			{Name: "published requests", Width: 24 + 64 + 64, Entries: connections * remembered, Each: remembered},
			{Name: "published open appends", Width: 32 + 24 + 128 + 28*8 + 64, Entries: maxOpen},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedTimer, What: "appends without answer that the control plane sends again", Count: maxOpen},
			{Kind: pipeline.NeedICRC, What: "of steered appends and READs; the authors' P4 has it unchecked"},
		},
	}
}

// Kind is the registry entry of the published handler for the action steer.
var Kind = handler.Kind{
	Name: "steer published", Actions: []rules.Action{rules.Steer}, Mode: rules.Published,
	New: func(e *handler.Env) handler.Handler { return New(Config{Failed: e.Failed}) },
}

func (m *Machine) Kind() *handler.Kind { return &Kind }

// Wants lists the connection on which the control plane repairs the chains of the rule's server.
func (m *Machine) Wants(r *rules.Rule) []handler.Wanted {
	if r.Service == "" {
		return nil
	}
	return []handler.Wanted{{
		Key:    switchconn.Key{Server: r.Server, Shard: switchconn.RepairShard},
		Target: switchconn.Target{Service: r.Service, MTU: r.MTU},
	}}
}

// Uses reports whether the connection with key k is for repairs.
func (m *Machine) Uses(k switchconn.Key) bool { return k.Shard == switchconn.RepairShard }
