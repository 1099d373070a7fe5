package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Config bounds a table.
type Config struct {
	// Connections is how many connections are tracked, two rows each; 0: 4096.
	Connections int
	// Learning is how many of the rows may wait for their other half; 0: half of all. One host gets half of them.
	Learning int
	// Idle is how long a connection may be silent before it is forgotten, unless it is pinned. It must be longer than a NIC
	// goes on trying. 0: 10 minutes.
	Idle time.Duration
	// Quarantine is how long the key of a connection that has ended is not used again, unless the connection manager
	// announces a new one, and how long a row must have been silent for a PSN out of order to mean that its queue pair
	// was given to somebody else. It must be longer than a NIC goes on trying. 0: 30 seconds.
	Quarantine time.Duration
	// Settle is how long after its start the table takes a row that it meets for one that was there before: it then draws
	// no conclusions from PSNs that it did not see on that row for the time of Quarantine. 0: 30 seconds. Negative: no
	// connection was open at the start.
	Settle time.Duration
	// Seed spreads keys in the table, so that nobody can choose keys that meet.
	Seed uint64
	// OnClose is called when a connection has ended, for each of its rows, before the row is used again; nil: nothing.
	OnClose func(*Row)
}

func (c Config) withDefaults() Config {
	number := func(v *int, d int) {
		if *v <= 0 {
			*v = d
		}
	}
	span := func(v *time.Duration, d time.Duration) {
		if *v == 0 {
			*v = d
		}
	}
	number(&c.Connections, 4096)
	number(&c.Learning, c.Connections)
	c.Learning = min(c.Learning, 2*c.Connections)
	span(&c.Idle, 10*time.Minute)
	span(&c.Quarantine, 30*time.Second)
	span(&c.Settle, defaultSettle)
	if c.OnClose == nil {
		c.OnClose = func(*Row) {}
	}
	return c
}

// defaultSettle is the default of Config.Settle: who has tried for that long has given up.
const defaultSettle = 30 * time.Second

// sweepEvery is how often rows are looked at by time.
const sweepEvery = time.Second

// Table is the connections of a switch.
type Table struct {
	cfg   Config
	stats Stats

	rows   []*Row // by ID, made as needed
	free   []uint32
	used   int
	index  index
	serial uint32 // of generations

	closed list
	// Learning rows.
	slots  []*learning
	unused []uint32 // of slots
	pairs  map[ends]*crowd
	budget budget

	hosts     map[netip.Addr]*host
	perPort   map[int]int
	near      *host // that Elsewhere was asked about last
	hostSweep clock.Time

	// setups are connections that have been answered, under both of their numbers; asked are those that have not.
	setups     map[setupKey]*setup
	asked      map[setupKey]*setup
	setupSweep clock.Time

	started bool
	start   clock.Time // of the first packet
	sweep   clock.Time
	cursor  int // of the sweep, in rows
	mad     mad.Header
}

// NewTable makes an empty table.
func NewTable(cfg Config) *Table {
	cfg = cfg.withDefaults()
	t := &Table{
		cfg: cfg, index: newIndex(2*cfg.Connections, cfg.Seed), pairs: make(map[ends]*crowd),
		hosts: make(map[netip.Addr]*host), perPort: make(map[int]int), setups: make(map[setupKey]*setup), asked: make(map[setupKey]*setup), sweep: clock.Never,
		budget: budget{left: budgetBurst},
	}
	return t
}

// MaxRows bounds the IDs of rows.
func (t *Table) MaxRows() int { return 2 * t.cfg.Connections }

// MaxLearning bounds the rows that wait for their other half.
func (t *Table) MaxLearning() int { return t.cfg.Learning }

// MaxHosts bounds the addresses that are remembered behind a number of ports.
func (t *Table) MaxHosts(ports int) int { return ports * maxHostsPerPort }

// Checker knows whether the packet at hand came with the right ICRC; *pipeline.Parsed is one.
type Checker interface{ Intact() bool }

// intact asks a Checker that may be nil.
func intact(c Checker) bool { return c == nil || c.Intact() }

// gsi is the queue pair that the connection manager's datagrams go to.
const gsi wire.QPN = 1

// Packet looks at a packet that came in at a port, learns from it, and says what it is. f is only read. icrc is asked
// where a damaged packet could do harm; nil: the ICRC is right.
func (t *Table) Packet(now clock.Time, in int, f *wire.Frame, icrc Checker) Seen {
	op := f.BTH.Opcode
	if op.Service() != wire.ServiceRC {
		if op.Service() == wire.ServiceUD && f.BTH.DestQP == gsi {
			t.datagram(now, in, f, icrc)
		}
		return Seen{Bad: Untracked}
	}
	r := t.index.find(f)
	if r == nil || r.State != Open || r.Port != in || now.Sub(r.Last) >= rarely {
		return t.rare(now, in, r, f, icrc)
	}
	return t.speaks(now, r, f, icrc)
}

// rarely is how long a row must have been silent for it to be looked at more closely.
const rarely = time.Second

// rare is Packet for what does not belong to a busy connection that is known.
func (t *Table) rare(now clock.Time, in int, r *Row, f *wire.Frame, icrc Checker) Seen {
	response := f.BTH.Opcode.Is(wire.OpResponse)
	if r != nil && now.Sub(r.Last) >= t.cfg.Quarantine {
		if bad := t.reuse(now, r, f, icrc); bad != Fine {
			t.stats.Quarantined++
			return refused(r, response, bad)
		}
		r = t.index.find(f)
	}
	if r == nil {
		k := key{endsOf(f), f.BTH.DestQP}
		var bad Reason
		if r, bad = t.arrive(now, in, &k, f, icrc); r == nil {
			return Seen{Response: response, Bad: bad}
		}
	}
	if r.mistrusts() && !intact(icrc) {
		return refused(r, response, Corrupt)
	}
	if r.Port != in && !t.homed(now, r, in, icrc) {
		t.stats.Spoofed++
		return refused(r, response, Spoofed)
	}
	if r.State == Closed {
		t.stats.Quarantined++
		return refused(r, response, Quarantined)
	}
	r.host.last = now
	if r.learn != nil {
		r.host.learning.touch(r)
	}
	return t.speaks(now, r, f, icrc)
}

// speaks takes a packet as one of the row that it names.
func (t *Table) speaks(now clock.Time, r *Row, f *wire.Frame, icrc Checker) Seen {
	response := f.BTH.Opcode.Is(wire.OpResponse)
	if r.mistrusts() && !intact(icrc) {
		return refused(r, response, Corrupt)
	}
	if p := &r.Path; p.SrcPort != f.UDP.SrcPort || p.Eth.Src != f.Eth.Src || p.Eth.Dst != f.Eth.Dst {
		if intact(icrc) {
			t.setPath(r, f)
		}
	}
	if now.Sub(r.noted) >= rarely {
		r.noted, r.host.last = now, now
	}
	r.Last = now
	if response {
		return t.response(now, r, f, icrc)
	}
	return t.request(now, r, f, icrc)
}

// mistrusts reports whether the ICRC of packets in this direction is to be looked at.
func (r *Row) mistrusts() bool { return r.Checked || r.Peer != nil && r.Peer.Checked }

// refused is what is said of a packet that must not be used.
func refused(r *Row, response bool, bad Reason) Seen {
	if response {
		r = r.Peer
	}
	return Seen{Row: r, Response: response, Bad: bad}
}

// homed lets a row's packets come from another port if its host has moved.
func (t *Table) homed(now clock.Time, r *Row, in int, icrc Checker) bool {
	if r.Port < 0 || r.host.port == in {
		r.Port = r.host.port // the row was announced, or its host has moved before
		return r.Port == in
	}
	if !intact(icrc) || !t.moves(now, r.host, in) {
		return false
	}
	r.Port = in
	return true
}

// Stats returns a copy of the counters.
func (t *Table) Stats() Stats {
	s := t.stats
	s.Rows, s.Closed, s.Hosts = t.used, t.closed.n, len(t.hosts)
	s.Learning = len(t.slots) - len(t.unused)
	return s
}
