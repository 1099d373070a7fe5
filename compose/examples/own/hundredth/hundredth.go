// Package hundredth is a switch program: it counts requests by R_Key, and drops every hundredth READ.
package hundredth

import (
	"fmt"
	"maps"
	"slices"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

func init() {
	apps.Register(apps.Program{Name: "hundredth", New: func(*rackfile.Rack, apps.Config) (pipeline.Program, error) {
		return &program{requests: map[uint32]uint64{}}, nil
	}})
}

// maxKeys bounds the R_Keys that are counted one by one.
const maxKeys = 1024

type program struct {
	pipeline.NoTimer
	requests       map[uint32]uint64 // by R_Key
	others         uint64            // requests of further R_Keys
	reads, dropped uint64
}

func (*program) Spec() pipeline.Spec {
	return pipeline.Spec{Name: "hundredth", Doc: "counts requests by R_Key and drops every hundredth READ", Split: true, Verify: true}
}

// Packet is called for every RoCEv2 packet that crosses the switch.
func (p *program) Packet(_ *pipeline.Ctx, in *pipeline.Parsed) pipeline.Verdict {
	switch op := in.BTH.Opcode; {
	case op.Has(wire.HasRETH): // a READ, or the first packet of a WRITE
		p.count(in.RETH.RKey)
	case op.Has(wire.HasAtomicETH):
		p.count(in.AtomicETH.RKey)
	}
	if in.BTH.Opcode == wire.RCReadRequest {
		if p.reads++; p.reads%100 == 0 {
			p.dropped++
			return pipeline.Drop("hundredth READ")
		}
	}
	return pipeline.Forward()
}

func (p *program) count(key uint32) {
	if _, known := p.requests[key]; known || len(p.requests) < maxKeys {
		p.requests[key]++
	} else {
		p.others++
	}
}

// Counters is what `rdmalab switch counters` shows.
func (p *program) Counters(clock.Time) []handler.Group {
	var keys []handler.Counter
	for _, key := range slices.Sorted(maps.Keys(p.requests)) {
		keys = append(keys, handler.Counter{Name: fmt.Sprintf("rkey-%#x", key), Value: p.requests[key], Help: "requests that name this R_Key"})
	}
	return []handler.Group{
		{Name: "reads", Counters: []handler.Counter{
			{Name: "seen", Value: p.reads, Help: "READ requests, also sent again"}, {Name: "dropped", Value: p.dropped, Help: "every hundredth of them"},
		}},
		{Name: "requests", Counters: append(keys, handler.Counter{Name: "others", Value: p.others, Help: "requests of further R_Keys"})},
	}
}
