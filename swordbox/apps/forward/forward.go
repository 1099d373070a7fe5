// Package forward is the plain switch program: it forwards every RoCEv2 packet as it is. It keeps
// no state, so a switch that runs it costs what layer 2 costs, and super-frames pass whole.
package forward

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Program forwards. The zero value is ready.
type Program struct{}

var _ pipeline.Program = Program{}

// Spec declares no memory.
func (Program) Spec() pipeline.Spec {
	return pipeline.Spec{Name: "forward", Doc: "forwards by destination MAC address and changes nothing"}
}

// Packet forwards.
func (Program) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }

// Tick has nothing to do.
func (Program) Tick(*pipeline.Ctx) {}

// Deadline is never.
func (Program) Deadline() clock.Time { return clock.Never }
