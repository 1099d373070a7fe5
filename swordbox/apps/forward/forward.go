// Package forward is the plain switch program: it forwards every RoCEv2 packet unchanged. It keeps
// no state, so a switch that runs it does no more work than a layer-2 switch, and forwards
// super-frames whole.
package forward

import "github.com/rdmalab/rdmalab/swordbox/pipeline"

// Program forwards packets. The zero value is ready to use.
type Program struct{ pipeline.NoTimer }

var _ pipeline.Program = Program{}

func (Program) Spec() pipeline.Spec {
	return pipeline.Spec{Name: "forward", Doc: "forwards by destination MAC address and changes nothing", Blind: true}
}

func (Program) Packet(*pipeline.Ctx, *pipeline.Parsed) pipeline.Verdict { return pipeline.Forward() }
