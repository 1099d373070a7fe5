package conntrack

import (
	"cmp"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

type Config struct {
	// Connections is how many connections the table tracks, two flows each; 0 means 4096.
	Connections int
	// Learning is how many flows without a peer the table may have; 0 means half of all flows. One
	// host may have half of this number.
	Learning int
	// Idle is how long a connection may be silent before the table forgets it, unless it is pinned
	// (Flow.Pinned). It must be longer than the time for which NICs retry. 0 means 10 minutes.
	Idle time.Duration
	// Quarantine is how long the table refuses packets with the key of an ended connection, unless
	// the connection manager announces a new connection. It is also how long a flow must have been
	// silent before a PSN out of order means that its queue pair belongs to another connection. It
	// must be longer than the time for which NICs retry. 0 means 30 seconds.
	Quarantine time.Duration
	// Settle is how long after its start the table assumes that a new flow may belong to a
	// connection that is older than the table. The requester of such a flow may have used PSNs that
	// the table has not seen. The table allows for that until the longer of Settle and Quarantine
	// has passed since the flow was created. 0 means 30 seconds. A negative value means that no
	// connection existed at the start.
	Settle time.Duration
	// Seed is the seed of the hash of keys. It keeps hosts from choosing keys that collide.
	Seed uint64
	// OnClose is called for each flow that has ended or that the table forgets, before the Flow is
	// reused; nil means that it is not called.
	OnClose func(*Flow)
	// Trunks are the ports that lead to other switches; nil means none. The packets of a host may come
	// at any of them, so the table takes them for one port.
	Trunks []int
}

func (c Config) withDefaults() Config {
	c.Connections = cmp.Or(max(0, c.Connections), 4096)
	c.Learning = min(cmp.Or(max(0, c.Learning), c.Connections), 2*c.Connections)
	c.Idle = cmp.Or(c.Idle, 10*time.Minute)
	c.Quarantine = cmp.Or(c.Quarantine, 30*time.Second)
	c.Settle = cmp.Or(c.Settle, defaultSettle)
	if c.OnClose == nil {
		c.OnClose = func(*Flow) {}
	}
	return c
}

// defaultSettle is the default of Config.Settle. It is longer than the time for which NICs retry.
const defaultSettle = 30 * time.Second

// Table holds the connections that cross a switch. Make one with NewTable.
type Table struct {
	cfg   Config
	stats Stats

	flows  []*Flow  // index is the ID; allocated as needed
	free   []uint32 // IDs of the elements of flows that are not in use
	used   int      // number of flows in use
	serial uint32   // the Generation that the newest flow got
	index  index
	closed list // the flows in quarantine

	learner learner
	hosts   hosts
	setups  setups
	header  mad.Header // header of the datagram that is being parsed

	started bool       // true if start is valid
	start   clock.Time // time of the first packet of a flow that no REP had announced
	sweep   clock.Time // when Tick must be called next
	cursor  int        // index of the flow with which the sweep continues
}

func NewTable(cfg Config) *Table {
	cfg = cfg.withDefaults()
	t := &Table{cfg: cfg, index: newIndex(2*cfg.Connections, cfg.Seed), sweep: clock.Never}
	t.learner = newLearner(cfg.Learning, &t.stats)
	t.hosts = newHosts(&t.stats)
	if len(cfg.Trunks) > 0 {
		t.hosts.trunk = cfg.Trunks[0]
	}
	t.setups = newSetups(cfg.Connections, &t.stats)
	return t
}

// MaxFlows returns the bound on flows, and on their IDs.
func (t *Table) MaxFlows() int { return 2 * t.cfg.Connections }

// MaxLearning returns the bound on flows whose peer is not known yet.
func (t *Table) MaxLearning() int { return t.cfg.Learning }

// MaxHosts returns the bound on addresses that the table remembers, for a switch with that many
// ports.
func (t *Table) MaxHosts(ports int) int { return ports * maxHostsPerPort }

// Bind binds an address to a port: at other ports, packets with this source address are refused. A
// negative port removes the binding.
func (t *Table) Bind(a netip.Addr, port int) { t.hosts.bind(a, port) }

// Elsewhere reports whether an address is bound to another port than port. If so, a packet with
// this source address at port is forged. The result is false for an address that is not bound.
func (t *Table) Elsewhere(a netip.Addr, port int) bool { return t.hosts.elsewhere(a, t.at(port)) }

// at returns the port for which the table takes the port `in`.
func (t *Table) at(in int) int {
	if len(t.cfg.Trunks) > 1 && slices.Contains(t.cfg.Trunks[1:], in) {
		return t.cfg.Trunks[0]
	}
	return in
}

// Checker reports whether the ICRC of the current packet is correct. *pipeline.Parsed is one.
type Checker interface{ Intact() bool }

// intact reports whether the ICRC is correct according to a Checker; nil means that it is correct.
func intact(c Checker) bool { return c == nil || c.Intact() }

// rarely is the silence after which the table checks the next packet of a flow more closely.
const rarely = time.Second

// busy reports whether a packet from port `in` needs no closer check: the flow is open, its packets
// come from this port, and the last one came recently. fl may be nil.
func (fl *Flow) busy(now clock.Time, in int) bool {
	return fl != nil && fl.State == Open && fl.Port == in && now.Sub(fl.Last) < rarely
}

// Packet updates the table for a packet that arrived at port `in`, and returns what the table knows
// about the packet. It only reads f. If a damaged packet could do harm, Packet checks the ICRC
// through icrc; nil means that the ICRC is correct.
func (t *Table) Packet(now clock.Time, in int, f *wire.Frame, icrc Checker) Seen {
	in = t.at(in)
	op := f.BTH.Opcode
	if op.Service() != wire.ServiceRC {
		if op.Service() == wire.ServiceUD && f.BTH.DestQP == gsi {
			t.datagram(now, in, f, icrc)
		}
		return Seen{Bad: Untracked}
	}
	fl := t.index.find(f)
	if !fl.busy(now, in) {
		return t.rare(now, in, fl, f, icrc)
	}
	return t.dispatch(now, fl, f, icrc)
}

// rare handles a packet that needs a closer check (see Flow.busy): its flow is unknown, not open,
// silent until now, or from another port. fl is the flow; nil if the table has none for the packet.
func (t *Table) rare(now clock.Time, in int, fl *Flow, f *wire.Frame, icrc Checker) Seen {
	response := f.BTH.Opcode.Is(wire.OpResponse)
	if fl != nil && now.Sub(fl.Last) >= t.cfg.Quarantine {
		if !intact(icrc) {
			// A damaged packet must not end the silence, because reuse checks only the first packet
			// after a silence. The next packet, perhaps of a new connection, would count as one of
			// the old connection.
			t.stats.Damaged++
			return fl.refused(response, Corrupt)
		}
		if bad := t.reuse(now, fl, f); bad != Fine {
			t.stats.Quarantined++
			return fl.refused(response, bad)
		}
		fl = t.index.find(f)
	}
	if fl == nil {
		k := key{addrsOf(f), f.BTH.DestQP}
		var bad Reason
		if fl, bad = t.arrive(now, in, &k, f, icrc); fl == nil {
			return Seen{Response: response, Bad: bad}
		}
	}
	if fl.mistrusts() && !intact(icrc) {
		return fl.refused(response, Corrupt)
	}
	if fl.Port != in && !t.hosts.home(now, fl, in, icrc) {
		t.stats.Spoofed++
		return fl.refused(response, Spoofed)
	}
	if fl.State == Closed {
		t.stats.Quarantined++
		return fl.refused(response, Quarantined)
	}
	fl.host.last = now
	if fl.learn != nil {
		fl.host.learning.touch(fl)
	}
	return t.dispatch(now, fl, f, icrc)
}

// dispatch handles a packet of a known flow that has passed the checks.
func (t *Table) dispatch(now clock.Time, fl *Flow, f *wire.Frame, icrc Checker) Seen {
	response := f.BTH.Opcode.Is(wire.OpResponse)
	if fl.mistrusts() && !intact(icrc) {
		return fl.refused(response, Corrupt)
	}
	if p := &fl.Path; p.SrcPort != f.UDP.SrcPort || p.Eth.Src != f.Eth.Src || p.Eth.Dst != f.Eth.Dst {
		if intact(icrc) {
			fl.follow(f)
		}
	}
	if now.Sub(fl.noted) >= rarely {
		fl.noted, fl.host.last = now, now
	}
	fl.Last = now
	if response {
		return t.response(now, fl, f, icrc)
	}
	return t.request(now, fl, f, icrc)
}

func (t *Table) Stats() Stats {
	s := t.stats
	s.Flows, s.Closed, s.Hosts = t.used, t.closed.n, len(t.hosts.byAddr)
	s.Learning = t.learner.inUse()
	return s
}
