package tracestore

import (
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Machine records the packets under rules of action trace. Make one with New.
type Machine struct {
	handler.NoRequests
	env     handler.Env
	sources []*source
	rings   []*ring
	ports   pipeline.PortTable[source]
	extmem.Links[*channel]
	stats Stats
	made  uint32 // number of channels made so far
	begun uint32 // number of rings made so far
}

// Stats counts what a Machine did.
type Stats struct {
	Packets   uint64 `name:"packets" help:"packets of hosts under rules of action trace"`
	Sampled   uint64 `name:"sampled" help:"those of these packets that belong to the sample"`
	Records   uint64 `name:"records" help:"records of packets; a super-frame has one"`
	Stored    uint64 `name:"stored" help:"records that are in the servers' memory: a response says so"`
	Uncertain uint64 `name:"uncertain" help:"records that were in flight when a connection failed: they may be in the memory"`
	Dropped   uint64 `name:"dropped" help:"records that are not in the memory: the server could take no WRITE, or its memory or the rule was removed"`
	Writes    uint64 `name:"writes" help:"WRITEs of records, without retransmissions"`
	Failures  uint64 `name:"failures" help:"connections to servers that have failed"`
	Strangers uint64 `name:"strangers" help:"packets to queue pairs of the switch from another host than the connected memory server"`
}

var (
	_ handler.Machine = (*Machine)(nil)
	_ handler.Picker  = (*Machine)(nil)
	_ handler.Tabler  = (*Machine)(nil)
	_ handler.Taker   = (*Machine)(nil)
)

// New makes a Machine without rules. It uses these fields of env: Failed, Missing, Silence and Port. If Failed is
// nil, failed connections are not replaced. If Port is nil, rules record nothing.
func New(env handler.Env) *Machine {
	links := extmem.NewLinks[*channel](env.Failed)
	links.Missing = env.Missing
	return &Machine{env: env, Links: links, ports: pipeline.PortTable[source]{Marks: new(pipeline.MarkedPorts)}}
}

func (m *Machine) Stats() Stats { return m.stats }

// Waiting returns how many records wait in the switch, and how many are in flight.
func (m *Machine) Waiting() (waiting, inFlight uint64) {
	for _, g := range m.rings {
		waiting += g.waiting()
	}
	for _, ch := range m.Links.All {
		inFlight += ch.inFlight
	}
	return waiting, inFlight
}

// SetRules replaces the rules. A ring that rules still ask for goes on. A rule whose host or servers are
// not known yet records nothing.
func (m *Machine) SetRules(set *rules.Set) {
	former, sources := m.rings, m.sources
	m.rings, m.sources = nil, nil
	for _, ch := range m.Links.All {
		ch.need = 0
	}
	for r := range Kind.Of(set) {
		l := LayoutOf(r)
		for _, w := range m.Wants(r) {
			ch := m.channel(w.Key, r.Depth())
			ch.need = max(ch.need, l.End())
			ch.limits = extmem.LimitsOf(r, 0)
			ch.SetLimits(ch.limits)
		}
		port := -1
		if m.env.Port != nil {
			port = m.env.Port(r.Server)
		}
		if g := m.ring(former, &l); g != nil {
			g.ids = append(g.ids, r.ID)
			if port >= 0 {
				m.sources = append(m.sources, &source{rule: r, ring: g, port: port})
			}
		}
	}
	for _, g := range former {
		if !slices.Contains(m.rings, g) {
			m.stats.Dropped += g.waiting()
		}
	}
	m.follow(sources)
	m.Links.Recheck()
	m.Links.Sweep(nil)
}

// ring returns the ring with a layout: one of this set of rules, a former one, or a new one. It returns
// nil if the layout has no servers yet.
func (m *Machine) ring(former []*ring, l *Layout) *ring {
	same := func(g *ring) bool { return g.same(l) }
	if i := slices.IndexFunc(m.rings, same); i >= 0 {
		return m.rings[i]
	}
	if len(l.Servers) == 0 {
		return nil
	}
	var g *ring
	if i := slices.IndexFunc(former, same); i >= 0 {
		g = former[i]
	} else {
		g = m.newRing(l)
	}
	g.ids = nil
	for i, a := range l.Servers {
		g.batches[i].ch, _ = m.Links.Find(keyOf(a))
	}
	m.rings = append(m.rings, g)
	return g
}

// channel returns the channel with a key. It makes the channel if there is none.
func (m *Machine) channel(key switchconn.Key, depth int) *channel {
	if ch, ok := m.Links.Find(key); ok {
		ch.wanted = depth
		return ch
	}
	m.made++
	ch := m.newChannel(switchconn.TraceShard+m.made, depth)
	m.Links.Add(key, ch)
	return ch
}

// Wants lists the connections that a rule needs: one to each of its servers.
func (m *Machine) Wants(r *rules.Rule) (list []handler.Wanted) {
	l := LayoutOf(r)
	for _, a := range l.Servers {
		list = append(list, handler.Want(r, keyOf(a)))
	}
	return list
}

func (m *Machine) Attach(c *pipeline.Ctx, s switchconn.Shared) bool {
	_, ok := m.Links.Attach(c, &s)
	m.pump(c)
	return ok
}

func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	if _, ok := m.Links.Detach(c, k, generation); ok {
		m.Links.Sweep(nil)
	}
}

// ReasonStranger means that a packet is addressed to a queue pair of the switch, but does not come from
// the memory server to which this queue pair is connected.
const ReasonStranger pipeline.Reason = "not from the memory server"

// Owned handles a packet that a memory server has sent on one of the switch's connections.
func (m *Machine) Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	ch, ok := m.Links.Of(p.BTH.DestQP)
	if !ok || !ch.Packet(c, p) {
		m.stats.Strangers++
		return pipeline.Drop(ReasonStranger)
	}
	m.pump(c)
	return pipeline.Consume()
}

func (m *Machine) Tick(c *pipeline.Ctx) {
	for _, ch := range m.Links.All {
		if ch.Deadline() <= c.Now {
			ch.Tick(c)
		}
	}
	m.pump(c)
}

// pump sends the batches that are due.
func (m *Machine) pump(c *pipeline.Ctx) {
	for _, g := range m.rings {
		g.pump(c)
	}
}

func (m *Machine) Deadline() clock.Time {
	at := clock.Never
	for _, ch := range m.Links.All {
		at = clock.Min(at, ch.Deadline())
	}
	for _, g := range m.rings {
		at = clock.Min(at, g.deadline())
	}
	return at
}
