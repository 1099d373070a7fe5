package packetbuffer

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

type Config struct {
	// Kind is the machine's entry of the registry.
	Kind *handler.Kind
	// Port returns the port of the host that has an address; -1 means that there is none.
	Port func(a netip.Addr) int
	// Carrier makes the Carrier of a new link. number names it in captures.
	Carrier func(l *Link, number uint32) Carrier
	// Trusting is true if, as in the paper, a ring does not check that the entry that comes back is the
	// one for which it has asked, and a READ brings one entry.
	Trusting bool
	// Failed makes the program replace a connection; nil means that it is not replaced.
	Failed extmem.Replace
	// Missing says why the program has not made a connection; nil means that the reasons are not known.
	Missing func(switchconn.Key) string
}

// Carrier sends the requests of a ring to one server, and calls Link.Came once for each READ.
type Carrier interface {
	framering.Carrier
	// Attach uses a new connection to a server that lends the memory g. Detach is called when the
	// connection has ended.
	Attach(s *switchconn.Shared, g memgrant.Grant)
	Detach(c *pipeline.Ctx)
	// Packet handles a packet of the server; false means that another host has sent it. Tick is
	// called at Deadline.
	Packet(c *pipeline.Ctx, p *pipeline.Parsed) bool
	Tick(c *pipeline.Ctx)
	Deadline() clock.Time
}

// Link is a server of a ring with the connections to it.
type Link struct {
	extmem.Link
	Carrier
	m     *Machine
	queue *queue // the queue whose ring uses the server; nil means that there is none now
}

// Came hands the answer to a READ to the ring; see framering.Ring.Came.
func (l *Link) Came(e framering.Entry, b []byte) {
	if l.queue != nil {
		l.queue.ring.Came(e, b)
	}
}

// Written is called when the server has acknowledged a WRITE.
func (l *Link) Written(now clock.Time) {
	if l.queue != nil {
		l.queue.stores.moved(now, 0)
	}
}

func (l *Link) Failed(c *pipeline.Ctx, why string) {
	l.m.stats.Failures++
	l.m.Links.Fail(c, l, why)
}

func (l *Link) Needed() bool { return l.queue != nil }

// Fit returns why the ring cannot use a connection: the memory that the server lends is too small,
// or the path MTU is.
func (l *Link) Fit(s *switchconn.Shared) error {
	_, err := l.queue.Grant(s)
	if err == nil && s.MTU < l.queue.Size {
		err = fmt.Errorf("an entry of %d bytes is longer than the path MTU of %d bytes; give the links a larger MTU, or the rule a smaller entry", l.queue.Size, s.MTU)
	}
	return err
}

func (l *Link) Begin(s *switchconn.Shared) {
	g, _ := memgrant.Of(s.Answer) // Fit has returned no error
	l.Attach(s, g)
}

func (l *Link) End(c *pipeline.Ctx) { l.Detach(c) }

// Up reports whether the carrier has a connection and the ring fits the server's memory. Otherwise
// Reads is false and Writes is 0.
func (l *Link) Up() bool { return l.Usable() && l.Carrier.Up() }

// Reads reports whether a READ can be sent now without waiting for responses.
func (l *Link) Reads() bool { return l.Usable() && l.Carrier.Reads() }

// Writes returns how many WRITEs can be sent now without waiting for responses.
func (l *Link) Writes() int {
	if !l.Usable() {
		return 0
	}
	return l.Carrier.Writes()
}

// Machine queues frames under rules of action buffer. Make one with New.
type Machine struct {
	handler.NoRequests
	cfg    Config
	queues []*queue
	ports  []*queue // index is the port; nil means that the port has no queue
	extmem.Links[*Link]
	epoch uint32   // number of rings made so far
	made  uint32   // number of links made so far
	busy  bool     // true while the machine sends: frames that it sends itself bypass all queues
	stats Stats    // counters of removed queues, and of links
	idle  []string // IDs of the rules whose host or servers are not known yet
	marks *pipeline.QueuedPorts
	// later is the current set of rules if one of them has no queue yet, because a former queue of
	// its port is not empty. The machine applies the set again when a queue was removed. nil means
	// that no rule waits.
	later *rules.Set
}

// Stats counts what a Machine did. Frames that leave as one (segmentation offload) count as one.
type Stats struct {
	Frames    uint64 `name:"frames" help:"frames to hosts under rules of action buffer"`
	Sent      uint64 `name:"sent" help:"frames that the switch has sent to these hosts"`
	Stored    uint64 `name:"stored" help:"frames that went to a ring in servers' memory"`
	Loaded    uint64 `name:"loaded" help:"frames that have come back from a ring"`
	Lost      uint64 `name:"lost" help:"frames that went to a ring and will not come back"`
	Full      uint64 `name:"full" help:"frames dropped because the ring was full"`
	Blocked   uint64 `name:"blocked" help:"frames dropped because too many waited until a server could take a WRITE"`
	Long      uint64 `name:"long" help:"frames dropped because they are longer than the entries of a ring"`
	Down      uint64 `name:"down" help:"frames dropped because the port was down when their turn came"`
	Failures  uint64 `name:"failures" help:"connections to servers that have failed"`
	Strangers uint64 `name:"strangers" help:"packets to queue pairs of the switch from another host than the connected memory server"`
}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.RuleUser = (*Machine)(nil)
	_ handler.Picker   = (*Machine)(nil)
	_ handler.Queuer   = (*Machine)(nil)
	_ handler.Tabler   = (*Machine)(nil)
)

func New(cfg Config) *Machine {
	links := extmem.NewLinks[*Link](cfg.Failed)
	links.Missing = cfg.Missing
	return &Machine{cfg: cfg, Links: links, marks: new(pipeline.QueuedPorts)}
}

func (m *Machine) Kind() *handler.Kind { return m.cfg.Kind }

func (m *Machine) Stats() Stats {
	sum := m.stats
	for _, q := range m.queues {
		metrics.Add(&sum, q.stats)
	}
	return sum
}

// Waiting returns how many frames wait in the switch, and how many are in rings.
func (m *Machine) Waiting() (local, remote int) {
	for _, q := range m.queues {
		local += q.waiting()
		remote += int(q.ring.Remote())
	}
	return local, remote
}

// SetRules takes new rules. The queue of a host whose rule was removed, or has another mode now,
// remains until it is empty. Until then a new queue whose ring has the same memory stores no frames
// there.
func (m *Machine) SetRules(set *rules.Set) {
	for _, q := range m.queues {
		q.gone = true
	}
	m.idle, m.later = nil, nil
	for r := range m.cfg.Kind.Of(set) {
		port, l := m.port(r), LayoutOf(r)
		switch q := m.at(port); {
		case port < 0 || len(l.Servers) == 0:
			m.idle = append(m.idle, r.ID)
		case q != nil && !q.place.Newest():
			// The port has a newer queue than q, of the other mode. When q is empty, the rule gets
			// a new queue behind that one.
			m.later = set
		default:
			m.use(r.ID, port, l)
		}
	}
	for _, q := range m.queues {
		q.rivals = nil
		for _, o := range m.queues {
			if o != q && o.Service == q.Service && o.Overlaps(&q.Area) {
				q.rivals = append(q.rivals, o)
			}
		}
	}
	m.Links.Recheck()
	m.sweep()
}

// port returns the port of a rule's host; -1 means that there is none.
func (m *Machine) port(r *rules.Rule) int {
	if m.cfg.Port == nil {
		return -1
	}
	return m.cfg.Port(r.Server)
}

// use sets the layout of a port's queue. If the ring has a new place, size, service or depth, the
// frames in the former ring are lost.
func (m *Machine) use(id string, port int, l Layout) {
	q := m.at(port)
	if q == nil {
		q = &queue{port: port}
		m.queues = append(m.queues, q)
		for len(m.ports) <= port {
			m.ports = append(m.ports, nil)
		}
		m.ports[port] = q
		q.place = m.marks.Add(port)
	}
	if q.Rate != l.Rate {
		q.stores, q.loads = meter{}, meter{}
		if q.was == 0 {
			q.was = q.Rate
		}
	}
	same := q.sameRing(&l)
	q.id, q.Layout, q.gone = id, l, false
	if same {
		q.limit()
		return
	}
	q.stats.Lost += uint64(q.ring.Remote())
	m.epoch++
	for _, old := range m.Links.All {
		if old.queue == q {
			old.queue = nil
		}
	}
	window := l.Depth * len(l.Servers)
	if !m.cfg.Trusting {
		window *= framering.Share(&l.Area, maxMTU)
	}
	q.links = nil
	cfg := framering.Config{Layout: l.Area, Trusting: m.cfg.Trusting, Epoch: m.epoch, Window: window}
	for _, a := range l.Servers {
		k := m.link(m.key(a, port))
		k.queue = q
		q.links = append(q.links, k)
		cfg.Carriers = append(cfg.Carriers, k)
	}
	q.ring = framering.New(cfg)
	q.limit()
}

// limit sets the limits of the requests to the servers of a queue. The carriers of a published machine
// have none.
func (q *queue) limit() {
	for _, k := range q.links {
		if ch, ok := k.Carrier.(*channel); ok {
			ch.SetLimits(q.Limits)
		}
	}
}

// key returns the key of the switch's connection to a server that has entries of the port's ring.
func (m *Machine) key(server netip.Addr, port int) switchconn.Key {
	return switchconn.Key{Server: server, Shard: extmem.Shard(switchconn.BufferShard+port, m.cfg.Kind.Mode)}
}

// maxMTU is the largest path MTU in bytes.
const maxMTU = 4096

// link returns the link with a key. It makes the link if there is none.
func (m *Machine) link(key switchconn.Key) *Link {
	if l, ok := m.Links.Find(key); ok {
		return l
	}
	m.made++
	l := &Link{m: m}
	l.Carrier = m.cfg.Carrier(l, switchconn.BufferShard+m.made)
	m.Links.Add(key, l)
	return l
}

// at returns the queue of a port; nil means that there is none.
func (m *Machine) at(port int) *queue {
	if port < 0 || port >= len(m.ports) {
		return nil
	}
	return m.ports[port]
}

// sweep removes the queues that no rule needs and that are empty, and links without a use.
func (m *Machine) sweep() {
	before := len(m.queues)
	m.queues = slices.DeleteFunc(m.queues, func(q *queue) bool {
		if !q.gone || !q.idle() {
			return false
		}
		metrics.Add(&m.stats, q.stats)
		m.ports[q.port] = nil
		q.place.Leave()
		for _, l := range q.links {
			l.queue = nil
		}
		return true
	})
	m.Links.Sweep(nil)
	if m.later != nil && len(m.queues) < before {
		m.SetRules(m.later)
	}
}

// Requested returns the counters of the carrier's requester. A carrier of a published machine has
// none.
func (l *Link) Requested() (s requester.Stats) {
	if ch, ok := l.Carrier.(*channel); ok {
		s = ch.Stats()
	}
	return s
}

// settle is called at the end of a step. It removes empty queues whose rules are gone.
func (m *Machine) settle() {
	if slices.ContainsFunc(m.queues, func(q *queue) bool { return q.gone && q.idle() }) {
		m.sweep()
	}
}

// Wants lists the connections that a rule needs: one to each server of the ring.
func (m *Machine) Wants(r *rules.Rule) (list []handler.Wanted) {
	port := m.port(r)
	if port < 0 {
		return nil
	}
	for _, a := range LayoutOf(r).Servers {
		list = append(list, handler.Want(r, m.key(a, port)))
	}
	return list
}

// Attach gives the machine a connection of the switch, for the requests of a ring. It returns false
// if no ring can use this connection.
func (m *Machine) Attach(c *pipeline.Ctx, s switchconn.Shared) bool {
	l, ok := m.Links.Attach(c, &s)
	if ok {
		m.after(c, l.queue)
	}
	return ok
}

func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	if l, ok := m.Links.Detach(c, k, generation); ok {
		m.after(c, l.queue)
	}
	m.sweep()
}

// after lets a queue read from its ring again, after an answer of a server or a change of a
// connection.
func (m *Machine) after(c *pipeline.Ctx, q *queue) {
	if q == nil {
		return
	}
	m.busy = true
	q.load(c)
	m.busy = false
	m.settle()
}

func (m *Machine) MarkIn(q *pipeline.QueuedPorts) { m.marks = q }

// Queue accepts a frame that leaves through a port with a queue. It returns false if the port has
// no queue of this machine, if a newer queue of the port takes the frames, or if the machine itself
// sends the frame.
func (m *Machine) Queue(c *pipeline.Ctx, port int, f packetio.Frame) bool {
	q := m.at(port)
	if q == nil || m.busy || !q.place.Newest() {
		return false
	}
	m.busy = true
	q.accept(c, f)
	m.busy = false
	m.settle()
	return true
}

func (m *Machine) Flush(c *pipeline.Ctx) {
	for _, q := range m.queues {
		q.flush(c)
	}
}

// ReasonStranger means that the packet is addressed to a queue pair of the switch, but comes from
// another host than the server of this queue pair.
const ReasonStranger pipeline.Reason = "not from the ring's server"

func (m *Machine) Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	l, known := m.Links.Of(p.BTH.DestQP)
	m.busy = true
	known = known && l.Packet(c, p)
	m.busy = false
	if !known {
		m.stats.Strangers++
		return pipeline.Drop(ReasonStranger)
	}
	m.after(c, l.queue)
	return pipeline.Consume()
}

func (m *Machine) Tick(c *pipeline.Ctx) {
	m.busy = true
	for _, l := range m.Links.All {
		if l.Deadline() <= c.Now {
			l.Tick(c)
			if l.queue != nil {
				l.queue.load(c)
			}
		}
	}
	for _, q := range m.queues {
		if q.deadline() <= c.Now {
			q.tick(c)
		}
	}
	m.busy = false
	m.settle()
}

func (m *Machine) Deadline() clock.Time {
	at := clock.Never
	for _, l := range m.Links.All {
		at = clock.Min(at, l.Deadline())
	}
	for _, q := range m.queues {
		at = clock.Min(at, q.deadline())
	}
	return at
}
