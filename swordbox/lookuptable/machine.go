package lookuptable

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

type Config struct {
	// Kind is the machine's entry of the registry.
	Kind *handler.Kind
	// Port returns the port of the host that has an address; -1 means that there is none. MAC
	// returns the MAC address of the host or switch that has an address.
	Port func(a netip.Addr) int
	MAC  func(a netip.Addr) (wire.MAC, bool)
	// Server makes the Server of a new link. number names its connection in captures.
	Server func(l *Link, number uint32) Server
	// Trusting is true if the machine does not check that the frame and the entry that come back are
	// those for which it has asked, as in the paper.
	Trusting bool
	// Silence is how long the switch retransmits to a server that does not answer; 0 means 255 ms.
	Silence time.Duration
	// Failed makes the program replace a connection; nil means that it is not replaced.
	Failed extmem.Replace
	// Missing says why the program has not made a connection; nil means that the reasons are not known.
	Missing func(switchconn.Key) string
}

// Stats counts what a Machine did. Frames that come in as one (segmentation offload) count as one.
type Stats struct {
	Frames  uint64 `name:"frames" help:"IP packets of hosts under rules of action lookup"`
	Cached  uint64 `name:"cached" help:"packets with an entry in the switch's cache"`
	Hits    uint64 `name:"hits" help:"packets with an entry in a server's memory"`
	Misses  uint64 `name:"misses" help:"packets without an entry"`
	Denied  uint64 `name:"denied" help:"packets dropped because their entry says so; they count as cached or hits, too"`
	Torn    uint64 `name:"torn" help:"packets dropped because an entry was read while it was written"`
	Unfit   uint64 `name:"unfit" help:"RoCEv2 packets dropped because their entry rewrites addresses, which their ICRC covers"`
	Lost    uint64 `name:"lost" help:"packets that did not come back from a server's memory"`
	Full    uint64 `name:"full" help:"packets dropped because all cells were in use"`
	Blocked uint64 `name:"blocked" help:"packets dropped because there was no connection to a server, or no room in flight"`
	// CircledNS is the sum of the times of Circled.
	Circled   uint64 `name:"circled" help:"packets that waited in the switch for their entry (packets=recirculate)"`
	CircledNS uint64 `name:"circled_ns" help:"nanoseconds that these packets waited"`
	Learnt    uint64 `name:"learnt" help:"connections to a virtual address for which a host was chosen"`
	Returned  uint64 `name:"returned" help:"answers that got the virtual address as their source"`
	Long      uint64 `name:"long" help:"packets dropped because they are longer than all cells of a server"`
	Written   uint64 `name:"written" help:"entries written"`
	Removed   uint64 `name:"removed" help:"entries removed"`
	Refused   uint64 `name:"refused" help:"changes of entries that were not possible"`
	Failures  uint64 `name:"failures" help:"connections to servers that have failed"`
	Strangers uint64 `name:"strangers" help:"packets to queue pairs of the switch from another host than the connected memory server"`
}

// Machine looks up frames under rules of action lookup. Make one with New.
type Machine struct {
	handler.NoRequests
	cfg    Config
	tables []*Table
	ports  pipeline.PortTable[Table]
	back   pipeline.PortTable[returns] // by the port of a host that serves a virtual address
	extmem.Links[*Link]
	made  uint32   // number of links made so far
	stats Stats    // counters of removed tables, and of links
	idle  []string // IDs of the rules whose host or servers are not known yet
}

// Link is a memory server of a table, with the switch's present connection to it.
type Link struct {
	extmem.Link
	m     *Machine
	srv   Server
	table *Table         // nil means that no table needs the server
	grant memgrant.Grant // the memory of the last connection; the zero value means that there was none
}

func (l *Link) Needed() bool { return l.table != nil }

// Fit returns why the table cannot use a connection: the memory that the server lends is too small,
// or the path MTU is.
func (l *Link) Fit(s *switchconn.Shared) error {
	a := l.table.all()
	_, err := a.Grant(s)
	if err == nil && s.MTU < l.table.least() {
		err = fmt.Errorf("a cell of %d bytes, or the %d bytes that a lookup reads, are longer than the path MTU of %d bytes", l.table.Cell, l.table.probe()*SlotLen, s.MTU)
	}
	return err
}

// Begin uses a new connection. If the server lends another memory than before, for example because
// its service was restarted, the cache forgets the entries of the server.
func (l *Link) Begin(s *switchconn.Shared) {
	g, _ := memgrant.Of(s.Answer) // Fit has returned no error
	if g.Boot != l.grant.Boot || g.Region != l.grant.Region {
		l.table.forgetServer(slices.Index(l.table.links, l))
	}
	l.grant = g
	l.srv.Begin(s, g)
}

func (l *Link) End(c *pipeline.Ctx) { l.srv.End(c) }

// Requested returns the counters of the requester on the connection to the server. A published rule
// has no requester: then all counters are 0.
func (l *Link) Requested() (s requester.Stats) {
	if b, ok := l.srv.(*bouncer); ok {
		s = b.Stats()
	}
	return s
}

func (l *Link) failed(c *pipeline.Ctx, why string) {
	l.m.stats.Failures++
	l.m.Links.Fail(c, l, why)
}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.RuleUser = (*Machine)(nil)
	_ handler.Picker   = (*Machine)(nil)
	_ handler.Taker    = (*Machine)(nil)
	_ handler.Tabler   = (*Machine)(nil)
	_ handler.Keeper   = (*Machine)(nil)
)

func New(cfg Config) *Machine {
	links := extmem.NewLinks[*Link](cfg.Failed)
	links.Missing = cfg.Missing
	return &Machine{
		cfg: cfg, Links: links, ports: pipeline.PortTable[Table]{Marks: new(pipeline.MarkedPorts)},
		back: pipeline.PortTable[returns]{Marks: new(pipeline.MarkedPorts)},
	}
}

func (m *Machine) Kind() *handler.Kind { return m.cfg.Kind }

func (m *Machine) Stats() Stats {
	sum := m.stats
	for _, t := range m.tables {
		metrics.Add(&sum, t.stats)
	}
	return sum
}

func (m *Machine) InFlight() (n int) {
	for _, t := range m.tables {
		n += t.inFlight()
	}
	return n
}

// SetRules takes new rules. If a rule has been removed, or has another table now, its frames in
// flight are lost. Its waiting changes go to the new table if that has the same slots, and are
// refused otherwise.
func (m *Machine) SetRules(set *rules.Set) {
	former := m.tables
	m.tables, m.idle = nil, nil
	for r := range m.cfg.Kind.Of(set) {
		port, l := m.port(r.Server), LayoutOf(r)
		if port < 0 || len(l.Servers) == 0 || l.VIP.IsValid() && len(l.Pool) == 0 {
			m.idle = append(m.idle, r.ID)
			continue
		}
		t := &Table{m: m, port: port}
		if at := slices.IndexFunc(former, func(t *Table) bool { return t.port == port && t.same(&l) }); at >= 0 {
			t = former[at]
		}
		t.id, t.Layout = r.ID, l
		m.tables = append(m.tables, t)
	}
	former = slices.DeleteFunc(former, func(t *Table) bool { return slices.Contains(m.tables, t) })
	for _, t := range former {
		t.stats.Lost += uint64(t.inFlight())
	}
	for _, t := range m.tables {
		if t.links == nil {
			m.begin(t)
		}
		for _, l := range t.links {
			if b, ok := l.srv.(*bouncer); ok { // a published server has no limits
				b.SetLimits(t.Limits)
			}
		}
	}
	for _, t := range former {
		m.end(t)
	}
	m.Links.Recheck()
	m.Links.Sweep(nil)
	m.mark()
}

func (m *Machine) begin(t *Table) {
	t.cache = newCache(t.Cache)
	for i, a := range t.Servers {
		key := m.key(a, t.port)
		l, ok := m.Links.Find(key)
		if !ok {
			m.made++
			l = &Link{m: m}
			l.srv = m.cfg.Server(l, switchconn.LookupShard+m.made)
			m.Links.Add(key, l)
		}
		l.table = t
		l.srv.Use(t, i)
		t.links = append(t.links, l)
	}
}

// end is called for a table t that no rule has now. The switch closes the connections of t later,
// unless a new table uses them. A new table of the same rule continues the counters of t.
func (m *Machine) end(t *Table) {
	for _, l := range t.links {
		if l.table == t {
			l.table = nil
			l.srv.Use(nil, 0)
		}
	}
	sum := &m.stats
	if at := slices.IndexFunc(m.tables, func(n *Table) bool { return n.id == t.id && n.port == t.port }); at >= 0 {
		sum, m.tables[at].why = &m.tables[at].stats, t.why
	}
	metrics.Add(sum, t.stats)
}

// key returns the key of the connection to a server of a port's table.
func (m *Machine) key(server netip.Addr, port int) switchconn.Key {
	return switchconn.Key{Server: server, Shard: extmem.Shard(switchconn.LookupShard+port, m.cfg.Kind.Mode)}
}

// mark brings the fields ports and back up to date.
func (m *Machine) mark() {
	m.ports.Set(m.tables, func(t *Table) int { return t.port })
	m.back.Set(m.backends(), func(r *returns) int { return r.port })
}

func (m *Machine) port(a netip.Addr) int {
	if m.cfg.Port == nil {
		return -1
	}
	return m.cfg.Port(a)
}

// Wants lists the connections that a rule needs: one to each server of the table.
func (m *Machine) Wants(r *rules.Rule) (list []handler.Wanted) {
	port := m.port(r.Server)
	if port < 0 {
		return nil
	}
	for _, a := range LayoutOf(r).Servers {
		list = append(list, handler.Want(r, m.key(a, port)))
	}
	return list
}

// Attach gives a connection of the switch to the Link that has asked for it. The result is false if
// no Link can use the connection.
func (m *Machine) Attach(c *pipeline.Ctx, s switchconn.Shared) bool {
	l, ok := m.Links.Attach(c, &s)
	if ok {
		l.srv.Work(c)
	}
	return ok
}

func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	if l, ok := m.Links.Detach(c, k, generation); ok {
		l.srv.Work(c)
	}
	m.Links.Sweep(nil)
}

func (m *Machine) MarkIn(q *pipeline.MarkedPorts) { m.ports.Marks, m.back.Marks = q, q }

// Take handles a frame that arrives at a port. It returns false if no rule looks up the frames of
// the port, or if the frame is no IP packet.
func (m *Machine) Take(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	if r := m.back.At(in); r != nil && r.back(c, in, f) {
		return true
	}
	t := m.ports.At(in)
	return t != nil && t.take(c, in, f)
}

// ReasonStranger means that the packet is addressed to a queue pair of the switch, but comes from
// another host than the server of this queue pair.
const ReasonStranger pipeline.Reason = "not from the table's server"

func (m *Machine) Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	l, known := m.Links.Of(p.BTH.DestQP)
	if !known || !l.srv.Packet(c, p) {
		m.stats.Strangers++
		return pipeline.Drop(ReasonStranger)
	}
	l.srv.Work(c)
	return pipeline.Consume()
}

func (m *Machine) Tick(c *pipeline.Ctx) {
	for _, l := range m.Links.All {
		if l.srv.Deadline() <= c.Now {
			l.srv.Tick(c)
			l.srv.Work(c)
		}
	}
	for _, t := range m.tables {
		t.expire(c)
	}
}

func (m *Machine) Deadline() clock.Time {
	at := clock.Never
	for _, l := range m.Links.All {
		at = clock.Min(at, l.srv.Deadline())
	}
	for _, t := range m.tables {
		at = clock.Min(at, t.deadline())
	}
	return at
}
