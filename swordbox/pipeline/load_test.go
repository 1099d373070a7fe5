package pipeline

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Packets that a program holds are forwarded when another program is loaded; learnt addresses stay.
func TestLoad(t *testing.T) {
	r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict { return c.Hold(p, clock.Never) })
	held := roce(0, 1, 7, "held")
	r.want("held", r.send(0, held), "[]")
	other := &testProgram{packet: func(_ *Ctx, p *Parsed) Verdict {
		if p.BTH.PSN == 9 {
			return Drop("by the other program")
		}
		return Forward()
	}}
	r.out.Reset()
	if err := r.Load(r.now, other, Self{}, &r.out); err != nil {
		t.Fatal(err)
	}
	r.want("what was held", r.left(), "[1]")
	if !bytes.Equal(r.out.Frames[0].Data, held) {
		t.Error("it was changed")
	}
	r.want("another packet", r.send(0, roce(0, 1, 8, "x")), "[1]")
	r.want("one that the other program drops", r.send(0, roce(0, 1, 9, "x")), "[]")
	if r.Load(r.now, nil, Self{}, &r.out) == nil {
		t.Error("no program")
	}
	r.want("after a refusal", r.send(0, roce(0, 1, 9, "x")), "[]")
}
