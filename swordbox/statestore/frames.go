package statestore

import (
	"reflect"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// frames are the rules of action measure, and the ports whose frames they count.
type frames struct {
	rules []*measured
	ports pipeline.PortTable[measured]
}

// measured is a rule of action measure. Rules that count in one sketch have the same flows.
type measured struct {
	counted counted
	by      telemetry.By
	sampler telemetry.Sampler
	flows   *hotwords.Top[telemetry.Key]
	port    int
	seen    uint64 // packets, and those that were counted
	sampled uint64
}

// MarkIn is called once, before rules are set (handler.Taker).
func (m *Machine) MarkIn(q *pipeline.MarkedPorts) { m.frames.ports.Marks = q }

// Take counts a frame that arrives at a port under a rule of action measure. It returns false,
// because the switch goes on with the frame.
func (m *Machine) Take(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	k, n := m.frames.ports.At(in), f.Packets()
	if k == nil {
		return false
	}
	taken := k.sampler.Take(n)
	k.seen += uint64(n)
	k.sampled += uint64(taken)
	m.stats.Packets += uint64(n)
	if taken == 0 {
		return false
	}
	m.stats.Sampled += uint64(taken)
	amount := uint64(taken)
	if k.counted.Bytes {
		amount = uint64(f.Len()) * uint64(taken) / uint64(n)
	}
	key := telemetry.Parse(f.Data, k.by)
	m.measure(c, k, &key, amount)
	return false
}

// measure adds an amount to the counters of a key.
func (m *Machine) measure(c *pipeline.Ctx, k *measured, key *telemetry.Key, amount uint64) {
	h, sketch := key.Hash(), k.counted.Sketch()
	k.flows.Add(h, key, amount)
	m.stats.Amount += amount * uint64(k.counted.Rows)
	m.record() // the journal must have the amount before a packet with it leaves
	for row := range k.counted.Rows {
		m.addTo(c, &k.counted, sketch.Slot(h, row), amount)
	}
	m.record()
}

// addTo adds an amount to a counter of a rule.
func (m *Machine) addTo(c *pipeline.Ctx, k *counted, slot int, amount uint64) {
	store, shard, offset := k.Place(slot)
	k.channels[store*k.Shards+shard].count(c, offset, amount)
}

// follow takes the rules of action measure of a new set. A rule that has not changed keeps its
// sampler, and the flows that the switch remembers. A rule whose host or servers are not known yet
// counts nothing.
func (fr *frames) follow(list []counted, port func(r *rules.Rule) int) {
	former := fr.rules
	fr.rules = nil
	for _, k := range list {
		r := k.rule
		n := &measured{counted: k, by: ByOf(r), sampler: SamplerOf(r), port: port(r)}
		if n.port < 0 || len(k.channels) == 0 {
			continue
		}
		for _, o := range former {
			if n.flows == nil && oneSketch(o.counted.rule, r, &o.counted.Layout, &k.Layout) {
				n.flows = o.flows
			}
			if reflect.DeepEqual(o.counted.rule, r) {
				n.sampler, n.seen, n.sampled = o.sampler, o.seen, o.sampled
			}
		}
		for _, o := range fr.rules {
			if oneSketch(o.counted.rule, r, &o.counted.Layout, &k.Layout) {
				n.flows = o.flows
			}
		}
		if n.flows == nil {
			n.flows = hotwords.NewTop[telemetry.Key](flowsOf(r))
		}
		fr.rules = append(fr.rules, n)
	}
	fr.mark()
}

// sketches returns the tables of flows, one for each sketch.
func (fr *frames) sketches() (list []*hotwords.Top[telemetry.Key]) {
	for _, k := range fr.rules {
		if !slices.Contains(list, k.flows) {
			list = append(list, k.flows)
		}
	}
	return list
}

// mark brings the field ports up to date.
func (fr *frames) mark() {
	fr.ports.Set(fr.rules, func(k *measured) int { return k.port })
}
