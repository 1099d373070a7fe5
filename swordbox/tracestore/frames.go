package tracestore

import (
	"reflect"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// source is a rule, and the port whose packets it records.
type source struct {
	rule    *rules.Rule
	ring    *ring
	sampler telemetry.Sampler
	port    int
}

// MarkIn is called once, before rules are set (handler.Taker).
func (m *Machine) MarkIn(q *pipeline.MarkedPorts) { m.ports.Marks = q }

// Take records a frame that arrives at a port under a rule. It returns false, because the switch goes on
// with the frame.
func (m *Machine) Take(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	k, n := m.ports.At(in), f.Packets()
	if k == nil {
		return false
	}
	taken := k.sampler.Take(n)
	m.stats.Packets += uint64(n)
	if taken == 0 {
		return false
	}
	m.stats.Sampled += uint64(taken)
	r := packettrace.Record{
		Time: c.Now, Length: uint32(f.Len()), Port: uint16(in), Packets: uint16(n), Taken: uint16(taken), Head: f.Data[:min(len(f.Data), packettrace.HeadLen)],
	}
	k.ring.record(c, &r)
	return false
}

// follow makes sources of the rules. A rule that has not changed keeps its sampler.
func (m *Machine) follow(former []*source) {
	for _, k := range m.sources {
		k.sampler = statestore.SamplerOf(k.rule)
		for _, o := range former {
			if reflect.DeepEqual(o.rule, k.rule) {
				k.sampler = o.sampler
			}
		}
	}
	m.ports.Set(m.sources, func(k *source) int { return k.port })
}
