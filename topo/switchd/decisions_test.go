package switchd

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// lastDropper drops the last packets of messages, by rule r1.
type lastDropper struct{ pipeline.NoTimer }

func (lastDropper) Spec() pipeline.Spec {
	return pipeline.Spec{Name: "last", Doc: "drops last packets"}
}

func (lastDropper) Packet(c *pipeline.Ctx, p *pipeline.Parsed) pipeline.Verdict {
	if p.BTH.Opcode == wire.RCSendLast {
		c.Under("r1")
		return pipeline.Drop("last")
	}
	return pipeline.Forward()
}

// The daemon tells what the program of the switch has dropped, with the host, the rule and the time, without a capture.
func TestDecisions(t *testing.T) {
	onBench(t, func(c *Config) { c.Program = lastDropper{} }, func(b *bench) {
		b.know()
		b.send(0, roce(0, 1, wire.RCSendOnly, 1))
		b.send(0, roce(0, 1, wire.RCSendLast, 2))
		var out Decisions
		if err := b.commands.Do(func() { out = b.programs.decisions() }); err != nil {
			t.Fatal(err)
		}
		if out.Total != 1 || len(out.List) != 1 {
			t.Fatalf("%+v", out)
		}
		d := out.List[0]
		if d.Program != "last" || d.Rule != "r1" || d.Reason != "last" || d.Host != "h0" || d.Opcode != "RC_SEND_LAST" || d.PSN != 2 || d.Packets != 1 || d.At.IsZero() {
			t.Errorf("%+v", d)
		}
	})
}
