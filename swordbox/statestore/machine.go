package statestore

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Machine counts the requests under hardened rules of action count with the key 'store', and the
// packets under rules of action measure. Make one with New.
type Machine struct {
	handler.NoRequests
	env    handler.Env
	counts []counted // rules of action count
	frames frames
	extmem.Links[*channel]
	labels labels
	stats  Stats
	made   uint32 // number of channels made so far
	behind uint64 // the last argument of Env.Behind
	former uint64 // the result of Env.FormerlyBehind
	asked  bool   // Env.FormerlyBehind was called
}

// counted is a rule with the channels to its memory servers. The channel of shard j to server i is
// at index i·Shards+j.
type counted struct {
	rule *rules.Rule
	Layout
	channels []*channel
}

// Stats counts what a Machine did.
type Stats struct {
	Requests  uint64 `name:"requests" help:"requests under rules of action count with the key 'store'"`
	Packets   uint64 `name:"packets" help:"packets of hosts under rules of action measure"`
	Sampled   uint64 `name:"sampled" help:"those of these packets that were counted"`
	Amount    uint64 `name:"amount" help:"what requests and packets add to counters: 1 each, or their bytes; with the key rows, in each row"`
	Applied   uint64 `name:"applied" help:"how much of the amount is in the stores' memory: a response says so"`
	Uncertain uint64 `name:"uncertain" help:"how much of the amount was in flight when a connection failed: it may be in the memory"`
	Dropped   uint64 `name:"dropped" help:"how much of the amount is not counted: too many counters waited, or the memory is too small"`
	Adds      uint64 `name:"fetch_adds" help:"FETCH_ADDs, without retransmissions"`
	Outside   uint64 `name:"outside" help:"times that a counter was outside of the memory that the server grants"`
	Failures  uint64 `name:"failures" help:"connections to stores that have failed"`
	Restarts  uint64 `name:"restarts" help:"connections to stores whose memory service had been restarted: its memory may be empty"`
	Strangers uint64 `name:"strangers" help:"packets to queue pairs of the switch from another host than the connected memory server"`
}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.Observer = (*Machine)(nil)
	_ handler.Picker   = (*Machine)(nil)
	_ handler.Tabler   = (*Machine)(nil)
	_ handler.Taker    = (*Machine)(nil)
)

// New makes a Machine without rules. It uses these fields of env: Failed, Missing, Behind, FormerlyBehind,
// Silence and Port. If Failed is nil, failed connections are not replaced. If Behind is nil, the
// amount that the machine has counted and no server has confirmed is not reported, and is lost in a
// crash of the switch. If FormerlyBehind is nil, earlier incarnations of the switch have left no such
// amount. If Port is nil, rules of action measure count nothing.
func New(env handler.Env) *Machine {
	links := extmem.NewLinks[*channel](env.Failed)
	links.Missing = env.Missing
	return &Machine{env: env, Links: links, frames: frames{ports: pipeline.PortTable[measured]{Marks: new(pipeline.MarkedPorts)}}}
}

func (m *Machine) Stats() Stats { return m.stats }

// Waiting returns the amounts that wait in the switch, and those in flight to the memory servers.
func (m *Machine) Waiting() (pending, inFlight uint64) {
	for _, ch := range m.Links.All {
		pending += ch.pending.sum
		inFlight += ch.flight.sum
	}
	return pending, inFlight
}

// Formerly returns an upper bound of the amount that earlier incarnations of the switch counted and
// that their crashes lost. The first call reads the journal. It must not come before the switch
// runs this program, because the former program may use the journal until then.
func (m *Machine) Formerly() uint64 {
	if !m.asked && m.env.FormerlyBehind != nil {
		m.former = m.env.FormerlyBehind()
	}
	m.asked = true
	return m.former
}

// SetRules replaces the rules. If no rule names a memory server now, amounts that wait for it are
// sent while its connection is up; without a connection they are dropped.
func (m *Machine) SetRules(set *rules.Set) {
	former, measures := m.counts, []counted(nil)
	m.counts = nil
	for _, ch := range m.Links.All {
		ch.users = 0
	}
	for r := range Kind.Of(set) {
		k := counted{rule: r, Layout: LayoutOf(r)}
		for _, w := range m.Wants(r) {
			ch := m.channel(w.Key, r.Depth())
			ch.users++
			ch.window.length = CombineOf(r)
			ch.setLimits(extmem.LimitsOf(r, 0))
			k.channels = append(k.channels, ch)
		}
		if r.Action == Measure {
			measures = append(measures, k)
		} else {
			m.counts = append(m.counts, k)
		}
	}
	m.frames.follow(measures, m.port)
	m.labels.follow(former, m.counts)
	var dropped uint64
	m.Links.Sweep(func(ch *channel) { dropped += ch.pending.sum })
	// If nothing was dropped, record must not be called: another program may still use the journal
	// (see Formerly).
	if dropped > 0 {
		m.stats.Dropped += dropped
		m.record()
	}
}

// port returns the port of the host of a rule; -1 means that it is not known.
func (m *Machine) port(r *rules.Rule) int {
	if m.env.Port == nil {
		return -1
	}
	return m.env.Port(r.Server)
}

// channel returns the channel with a key. It makes the channel if there is none.
func (m *Machine) channel(key switchconn.Key, depth int) *channel {
	if ch, ok := m.Links.Find(key); ok {
		ch.wanted = depth
		if ch.flight.n == 0 && !ch.Connected() {
			ch.resize(depth)
		}
		return ch
	}
	m.made++
	ch := m.newChannel(depth, switchconn.CountShard+m.made)
	m.Links.Add(key, ch)
	return ch
}

// Wants lists the connections to the memory servers of a rule.
func (m *Machine) Wants(r *rules.Rule) (list []handler.Wanted) { return WantsOf(r) }

// WantsOf lists the connections that a rule needs: one for each shard of each of its memory
// servers.
func WantsOf(r *rules.Rule) (list []handler.Wanted) {
	l := LayoutOf(r)
	for _, a := range l.Servers {
		for i := range l.Shards {
			list = append(list, handler.Want(r, switchconn.Key{Server: a, Shard: extmem.Shard(firstShard(r)+i, r.Mode)}))
		}
	}
	return list
}

func (m *Machine) Attach(c *pipeline.Ctx, s switchconn.Shared) bool {
	ch, ok := m.Links.Attach(c, &s)
	if ok {
		ch.pump(c)
		m.record()
	}
	return ok
}

func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	if _, ok := m.Links.Detach(c, k, generation); ok {
		m.record()
		m.Links.Sweep(nil)
	}
}

func (m *Machine) Observe(c *pipeline.Ctx, r *rules.Rule, t handler.Target) {
	for i := range m.counts {
		k := &m.counts[i]
		if k.rule != r {
			continue
		}
		amount := k.Amount(&t)
		m.stats.Requests++
		m.stats.Amount += amount * uint64(k.Rows)
		if amount == 0 || len(k.channels) == 0 {
			m.stats.Dropped += amount * uint64(k.Rows) // the rule is not resolved, so its servers have no addresses yet
			return
		}
		m.record() // the journal must have the amount before a packet with it leaves
		for row := range k.Rows {
			slot := k.Slot(r.Server, &t, row)
			m.labels.set(label{rule: r, slot: slot, from: t.From, to: t.To, va: t.VA})
			m.addTo(c, k, slot, amount)
		}
		m.record()
		return
	}
}

// record writes to the journal how much a crash loses at most: the amounts that wait, are in
// flight, or are uncertain.
func (m *Machine) record() {
	m.Formerly()
	if now := m.stats.Amount - m.stats.Applied - m.stats.Dropped; now != m.behind && m.env.Behind != nil {
		m.behind = now
		m.env.Behind(now)
	}
}

// ReasonStranger means that a packet is addressed to a queue pair of the switch, but does not come
// from the memory server to which this queue pair is connected.
const ReasonStranger pipeline.Reason = "not from the memory server"

// Owned handles a packet that a memory server has sent on one of the switch's connections, such as
// the response to a FETCH_ADD.
func (m *Machine) Owned(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	ch, ok := m.Links.Of(p.BTH.DestQP)
	if !ok || ch.conn.Link().Peer() != p.SrcAddr() {
		m.stats.Strangers++
		return pipeline.Drop(ReasonStranger)
	}
	ch.conn.Packet(c, &p.Frame)
	ch.pump(c)
	m.record()
	return pipeline.Consume()
}

func (m *Machine) Tick(c *pipeline.Ctx) {
	for _, ch := range m.Links.All {
		if ch.conn.Deadline() <= c.Now {
			ch.conn.Tick(c)
		}
		if ch.window.end <= c.Now {
			ch.pump(c)
		}
	}
	m.record()
}

func (m *Machine) Deadline() clock.Time {
	at := clock.Never
	for _, ch := range m.Links.All {
		at = clock.Min(at, clock.Min(ch.conn.Deadline(), ch.window.end))
	}
	return at
}
