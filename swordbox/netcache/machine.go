package netcache

import (
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Machine answers GETs under rules of action cache. Make one with New.
type Machine struct {
	handler.NoRequests
	env    handler.Env
	caches []*cache
	marks  *pipeline.MarkedPorts
	marked bool // all ports are in marks
	extmem.Links[*channel]
	made    uint32 // number of channels made so far
	begun   uint32 // number of caches made so far
	numbers numbers
	stats   Stats // counters of removed caches, and of channels
}

// Stats counts what a Machine did. Gets is the sum of Answered, Forwarded, Dropped and the GETs that wait.
type Stats struct {
	Gets      uint64 `name:"gets" help:"gets of one key to the key-value servers of rules of action cache"`
	Answered  uint64 `name:"answered" help:"of these, those that the switch has answered with a value in a server's memory"`
	Forwarded uint64 `name:"forwarded" help:"of these, those that went to the key-value server"`
	Dropped   uint64 `name:"dropped" help:"of these, those that waited for a value when their rule was removed"`
	// WaitedNS is the sum of the times of Answered.
	WaitedNS  uint64 `name:"waited_ns" help:"nanoseconds that the answered gets waited for their value"`
	Writes    uint64 `name:"writes" help:"requests that may change the value of one key"`
	Probes    uint64 `name:"probes" help:"gets that went to the key-value server under a number of the switch, so that their answer can be kept"`
	Filled    uint64 `name:"filled" help:"values written to the servers' memory"`
	Busy      uint64 `name:"busy" help:"gets of kept values that no READ could be sent for, or that could not wait for the value, because there was no connection or no room"`
	Stale     uint64 `name:"stale" help:"gets whose value changed, or may have, during its READ"`
	Lost      uint64 `name:"lost" help:"READs that did not find the value, because its WRITE was lost or the memory was"`
	Forgotten uint64 `name:"forgotten" help:"answers of a key-value server that might show another value of any key, after which the switch uses no value before it has asked again"`
	Held      uint64 `name:"held" help:"gets that have waited for the answer to a probe of their key, for its WRITE, or for room for their READ then"`
	Slow      uint64 `name:"slow" help:"gets that have waited for longer than 2 ms, so that they went to the key-value server"`
	Late      uint64 `name:"late" help:"answers to probes that came again, or too late"`
	TCP       uint64 `name:"tcp" help:"packets of TCP to or from the port of a cached server, which are dropped"`
	Unread    uint64 `name:"unread" help:"packets to the port of a cached server that are no whole UDP packet (fragments, several in one frame, a wrong length) or have extension headers of IPv6, which are dropped"`
	Spoofed   uint64 `name:"spoofed" help:"packets with the address of a cached server from another port than the server's, which are dropped"`
	Failures  uint64 `name:"failures" help:"connections to memory servers that have failed"`
	Strangers uint64 `name:"strangers" help:"packets to queue pairs of the switch from another host than the connected memory server"`
}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.RuleUser = (*Machine)(nil)
	_ handler.Picker   = (*Machine)(nil)
	_ handler.Taker    = (*Machine)(nil)
	_ handler.Tabler   = (*Machine)(nil)
)

// New makes a Machine without rules. It uses these fields of env: Failed, Missing, Silence and Port. If Port is nil,
// rules answer nothing.
func New(env handler.Env) *Machine {
	links := extmem.NewLinks[*channel](env.Failed)
	links.Missing = env.Missing
	return &Machine{env: env, Links: links, marks: new(pipeline.MarkedPorts)}
}

func (m *Machine) Stats() Stats {
	sum := m.stats
	for _, k := range m.caches {
		metrics.Add(&sum, k.stats)
	}
	return sum
}

// SetRules replaces the rules. A cache that a rule still asks for goes on.
func (m *Machine) SetRules(set *rules.Set) {
	former := m.caches
	m.caches = nil
	for r := range Kind.Of(set) {
		l, port := LayoutOf(r), m.port(r.Server)
		if port < 0 || len(l.Servers) == 0 {
			continue
		}
		addrs := append([]netip.Addr{r.Server}, r.Also...)
		at := slices.IndexFunc(former, func(k *cache) bool { return k.port == port && k.same(&l) && r.Of(k.server) })
		var k *cache
		if at >= 0 {
			k = former[at]
			k.own(addrs)
		} else {
			k = m.newCache(&l, addrs)
		}
		k.id, k.port, k.server, k.Layout = r.ID, port, r.Server, l
		m.caches = append(m.caches, k)
	}
	for _, k := range former {
		if !slices.Contains(m.caches, k) {
			m.end(k)
		}
	}
	for _, k := range m.caches {
		if k.links == nil {
			m.begin(k)
		}
		for _, ch := range k.links {
			ch.SetLimits(k.Limits)
		}
	}
	m.mark()
	m.Links.Recheck()
	m.Links.Sweep(nil)
}

// begin gives a new cache its channels.
func (m *Machine) begin(k *cache) {
	for _, a := range k.Servers {
		key := keyOf(a, k.port)
		ch, ok := m.Links.Find(key)
		if !ok {
			m.made++
			ch = m.newChannel(switchconn.CacheShard + m.made)
			m.Links.Add(key, ch)
		}
		ch.cache = k
		k.links = append(k.links, ch)
		if ch.Up() { // of a former rule
			k.begun(ch.Nonce())
		}
	}
}

func (m *Machine) end(k *cache) {
	k.end()
	for _, ch := range k.links {
		ch.cache = nil
	}
	metrics.Add(&m.stats, k.stats)
}

// mark asks the switch for the frames of all ports: a write may come from any.
func (m *Machine) mark() {
	if want := len(m.caches) > 0; want != m.marked {
		m.marked = want
		for port := range pipeline.MaxPorts {
			if want {
				m.marks.Add(port)
			} else {
				m.marks.Remove(port)
			}
		}
	}
}

func (m *Machine) port(a netip.Addr) int {
	if m.env.Port == nil {
		return -1
	}
	return m.env.Port(a)
}

// keyOf returns the key of the connection to a server, of the cache of the key-value server at a port.
func keyOf(a netip.Addr, port int) switchconn.Key {
	return switchconn.Key{Server: a, Shard: switchconn.CacheShard + port}
}

// Wants lists the connections that a rule needs: one to each of its memory servers.
func (m *Machine) Wants(r *rules.Rule) (list []handler.Wanted) {
	port := m.port(r.Server)
	if port < 0 {
		return nil
	}
	for _, a := range LayoutOf(r).Servers {
		list = append(list, handler.Want(r, keyOf(a, port)))
	}
	return list
}

func (m *Machine) Attach(c *pipeline.Ctx, s switchconn.Shared) bool {
	_, ok := m.Links.Attach(c, &s)
	m.wake(c)
	return ok
}

func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	m.Links.Detach(c, k, generation)
	m.Links.Sweep(nil)
	m.wake(c)
}

// wake lets held GETs go on.
func (m *Machine) wake(c *pipeline.Ctx) {
	for _, k := range m.caches {
		k.wake(c, true)
	}
}

func (m *Machine) MarkIn(q *pipeline.MarkedPorts) { m.marks = q }

// Take handles a frame that arrives at a port.
func (m *Machine) Take(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	var p packet
	if len(m.caches) == 0 || !p.parse(f.Data) {
		return false
	}
	if f.Packets() > 1 {
		p.payload = nil
	}
	for _, k := range m.caches {
		taken := k.take(c, in, &f, &p)
		k.wake(c, false)
		if taken {
			return true
		}
	}
	return false
}

// ReasonStranger means that a packet is addressed to a queue pair of the switch, but does not come from the server of
// this queue pair.
const ReasonStranger pipeline.Reason = "not from the cache's memory server"

func (m *Machine) Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	ch, known := m.Links.Of(p.BTH.DestQP)
	if !known || !ch.Packet(c, p) {
		m.stats.Strangers++
		return pipeline.Drop(ReasonStranger)
	}
	if ch.cache != nil {
		ch.cache.wake(c, true)
	}
	return pipeline.Consume()
}

func (m *Machine) Tick(c *pipeline.Ctx) {
	for _, ch := range slices.Clone(m.Links.All) {
		if ch.Deadline() <= c.Now {
			ch.Tick(c)
		}
	}
	m.wake(c) // a GET that can go on is not too late
	for _, k := range m.caches {
		k.tick(c)
	}
	m.wake(c)
}

func (m *Machine) Deadline() clock.Time {
	at := clock.Never
	for _, ch := range m.Links.All {
		at = clock.Min(at, ch.Deadline())
	}
	for _, k := range m.caches {
		if at = clock.Min(at, k.waits.deadline()); k.index.woken && k.waits.held > 0 {
			at = 0
		}
	}
	return at
}
