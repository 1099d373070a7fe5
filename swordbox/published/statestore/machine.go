package statestore

import (
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

var Kind = handler.Kind{
	Name: "count published", Actions: []rules.Action{hotwords.Count}, Mode: rules.Published, Selects: statestore.Selects,
	New: func(*handler.Env) handler.Handler { return New() },
}

func (m *Machine) Kind() *handler.Kind { return &Kind }

// Stats counts what a Machine did.
type Stats struct {
	Requests  uint64 `name:"requests" help:"requests under published rules of action count with the key 'store'"`
	Amount    uint64 `name:"amount" help:"what these requests add to counters: 1 each, or their bytes"`
	Sent      uint64 `name:"fetch_adds" help:"FETCH_ADDs"`
	Responses uint64 `name:"responses" help:"responses to FETCH_ADDs; any response counts"`
	Ignored   uint64 `name:"ignored" help:"ACKs, NAKs and other packets of memory servers"`
	Unsent    uint64 `name:"unsent" help:"amount that was not counted: there was no connection to the memory server, or the rule was removed or changed"`
}

// Machine counts the requests under published rules of action count with the key 'store'. Make one
// with New.
type Machine struct {
	handler.NoRequests
	pipeline.NoTimer
	counts []*counted
	extmem.Links[*channel]
	tx    wire.Frame // scratch
	stats Stats
}

// counted is a rule with its accumulator and the channels to its memory servers. The channel of
// shard j to server i is at index i·Shards+j.
type counted struct {
	rule *rules.Rule
	statestore.Layout
	accumulator uint64
	channels    []*channel
}

// channel is a connection to a memory server.
type channel struct {
	extmem.Link
	depth int
	used  bool // true if a rule uses the channel
	link  requester.Link
	// region is the server's memory. psn is the PSN of the next request. outstanding is the number
	// of FETCH_ADDs without a response.
	region      memgrant.Region
	psn         wire.PSN
	outstanding int
}

func (ch *channel) Needed() bool { return ch.used }

func (ch *channel) Begin(s *switchconn.Shared) {
	g, _ := memgrant.Of(s.Answer) // Fit has returned no error
	ch.link, ch.region, ch.psn, ch.outstanding = requester.LinkOf(s), g.Region, s.SendPSN, 0
}

// End does nothing: Begin sets all fields for the next connection.
func (ch *channel) End(*pipeline.Ctx) {}

var (
	_ handler.Machine  = (*Machine)(nil)
	_ handler.Observer = (*Machine)(nil)
	_ handler.Picker   = (*Machine)(nil)
)

func New() *Machine { return &Machine{Links: extmem.NewLinks[*channel](nil)} }

func (m *Machine) Stats() Stats { return m.stats }

// Accumulated returns the sum of the accumulators.
func (m *Machine) Accumulated() (sum uint64) {
	for _, k := range m.counts {
		sum += k.accumulator
	}
	return sum
}

// SetRules takes new rules. A rule that has not changed keeps its accumulator; all other rules
// begin with 0.
func (m *Machine) SetRules(set *rules.Set) {
	former := m.counts
	m.counts = nil
	for _, ch := range m.Links.All {
		ch.used = false
	}
	for r := range Kind.Of(set) {
		k := &counted{rule: r, Layout: statestore.LayoutOf(r)}
		for _, w := range m.Wants(r) {
			ch, ok := m.Links.Find(w.Key)
			if !ok {
				ch = new(channel)
				m.Links.Add(w.Key, ch)
			}
			ch.used, ch.depth = true, r.Depth()
			k.channels = append(k.channels, ch)
		}
		for _, f := range former {
			if f.rule.String() == r.String() {
				k.accumulator, f.accumulator = f.accumulator, 0
			}
		}
		m.counts = append(m.counts, k)
	}
	for _, f := range former {
		m.stats.Unsent += f.accumulator
	}
	m.Links.Sweep(nil)
}

func (m *Machine) Wants(r *rules.Rule) []handler.Wanted { return statestore.WantsOf(r) }

func (m *Machine) Attach(c *pipeline.Ctx, s switchconn.Shared) bool {
	_, ok := m.Links.Attach(c, &s)
	return ok
}

func (m *Machine) Detach(c *pipeline.Ctx, k switchconn.Key, generation uint32) {
	m.Links.Detach(c, k, generation)
	m.Links.Sweep(nil)
}

func (m *Machine) Observe(c *pipeline.Ctx, r *rules.Rule, t handler.Target) {
	for _, k := range m.counts {
		if k.rule != r {
			continue
		}
		amount := k.Amount(&t)
		m.stats.Requests++
		m.stats.Amount += amount
		if len(k.channels) == 0 {
			m.stats.Unsent += amount // the rule is not resolved, so its servers have no addresses yet
			return
		}
		store, shard, offset := k.Place(k.Slot(r.Server, &t, 0))
		k.accumulator += amount
		if ch := k.channels[store*k.Shards+shard]; !ch.Usable() || offset+8 > uint64(ch.region.Len) {
			m.stats.Unsent += amount
			k.accumulator -= amount
		} else if ch.outstanding < ch.depth {
			m.send(c, ch, offset, k.accumulator)
			k.accumulator = 0
		}
		return
	}
}

// send sends a FETCH_ADD, and keeps no copy of it.
func (m *Machine) send(c *pipeline.Ctx, ch *channel, offset, amount uint64) {
	f := &m.tx
	*f = wire.Frame{V6: ch.link.To.V6}
	f.BTH.Opcode = wire.RCFetchAdd
	f.AtomicETH = wire.AtomicETH{VA: ch.region.Addr + offset, RKey: ch.region.RKey, SwapOrAdd: amount}
	transform.Request(f, &ch.link.To, ch.psn)
	ch.psn = ch.psn.Next()
	ch.outstanding++
	m.stats.Sent++
	c.Emit(f, "")
}

// Owned handles a packet that a memory server has sent on one of the switch's connections. Any
// response to a FETCH_ADD, whatever its PSN, counts as one FETCH_ADD less in flight.
func (m *Machine) Owned(_ *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	if ch, ok := m.Links.Of(p.BTH.DestQP); ok && p.BTH.Opcode == wire.RCAtomicAck {
		m.stats.Responses++
		ch.outstanding--
	} else {
		m.stats.Ignored++
	}
	return pipeline.Consume()
}

func (m *Machine) Info(clock.Time) handler.Info {
	outstanding := 0
	for _, ch := range m.Links.All {
		outstanding += ch.outstanding
	}
	return handler.Info{Mode: rules.Published, Counters: append(handler.Counters("", m.stats),
		handler.Counter{Name: "accumulated", Value: m.Accumulated(), Help: "amount that waits in the accumulators for another request"},
		handler.Counter{Name: "outstanding", Value: uint64(max(0, outstanding)), Help: "FETCH_ADDs without response, as the switch counts them"})}
}

func (m *Machine) Spec() pipeline.Part {
	n := max(1, len(m.Links.All))
	return pipeline.Part{
		Tables: []pipeline.TableSpec{{Name: "published counters", KeyBits: 128 + 32 + 2*64, ValueBits: 48 + 20 + 8, Entries: rules.MaxRules}},
		Registers: []pipeline.RegisterSpec{
			{Name: "published accumulators", Width: 64, Entries: rules.MaxRules},
			{Name: "published servers", Width: 24 + 24 + 8 + 64 + 32 + 64, Entries: n},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedPackets, What: "FETCH_ADDs, made of copies of the requests", Count: 1},
			{Kind: pipeline.NeedICRC, What: "of the FETCH_ADDs; the authors may have it unchecked"},
		},
	}
}
