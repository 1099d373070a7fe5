package pipeline

import (
	"bytes"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A packet with a long payload that the program rewrites or emits has the right ICRC, also when the
// memory of the received packet holds another payload afterwards.
func TestRewriteOfLongPayload(t *testing.T) {
	const size = 4093
	later := wire.Frame{}
	r, p := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		later = p.Frame
		p.Intact()
		p.BTH.PSN = 0x123456
		c.Emit(&p.Frame, "")
		return Rewrite()
	})
	p.deadline = clock.Never
	p.tick = func(c *Ctx) {
		p.deadline = clock.Never
		c.Emit(&later, "")
	}
	text := strings.Repeat("long", size/4+1)[:size]
	in := roce(0, 1, 1, text)
	r.want("rewritten", r.send(0, in), "[1 1]")
	changed := roceFrame(0, 1, 0x123456, text)
	for _, f := range r.out.Frames {
		if !bytes.Equal(f.Data, changed.AppendTo(nil)) {
			t.Errorf("got %x", f.Data)
		}
	}
	for i := range later.Payload {
		later.Payload[i] ^= 0x55
	}
	p.deadline = 0
	r.want("emitted", r.tick(), "[1]")
	if got := r.out.Frames[0].Data; !bytes.Equal(got, later.AppendTo(nil)) {
		t.Error("the ICRC of the emitted packet is that of the former payload")
	}
	in[len(in)-20] ^= 1
	r.want("damaged", r.send(0, in), "[1]") // the program emits what it likes
	if got := r.out.Frames[0].Data; !wire.CheckICRC(got) || r.Port(0).Drops[ReasonBadICRC] != 1 {
		t.Errorf("drops %v", r.Port(0).Drops)
	}
}
