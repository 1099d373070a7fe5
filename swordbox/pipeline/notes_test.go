package pipeline

import (
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// peers lists the notes with the port on the other side.
func (r *rig) peers() string {
	var list []string
	for _, n := range r.Notes() {
		if n.Out < -1 || n.Peer < -1 {
			r.t.Errorf("a note about frame %d, from port %d", n.Out, n.Peer)
		}
		where := "in"
		if n.Out >= 0 {
			where = fmt.Sprintf("out%d", r.out.Frames[n.Out].Port)
		}
		list = append(list, fmt.Sprintf("%s %q %d", where, n.Text, n.Peer))
	}
	return strings.Join(list, "; ")
}

// The links on both sides have a note of each change that a program makes to a packet, and each
// note names the other port.
func TestNotesOnBothLinks(t *testing.T) {
	var id HoldID
	r, p := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		switch p.BTH.PSN {
		case 1:
			p.BTH.PSN = 9
			return Rewrite().With("moved")
		case 2:
			return Forward().With("seen")
		case 3:
			return Consume().With("kept")
		case 4:
			c.Emit(&p.Frame, "instead")
			return Consume()
		case 5:
			v := c.Hold(p, 100)
			id = v.ID
			return v.With("waits")
		case 6:
			c.Release(id, nil, "")
			return Drop("done")
		case 7:
			c.Release(id, &p.Frame, "goes")
			return Drop("done")
		}
		return Rewrite()
	})
	r.program.spec.Name, p.spec.Name = "test", "test"
	for _, s := range []struct {
		psn  wire.PSN
		dst  int
		want string
	}{
		{1, 2, `in "moved" 2; out2 "moved" 0`},
		{2, 1, `in "seen" 1; out1 "seen" 0`},
		{3, 1, `in "kept" -1`},
		{4, 1, `out1 "instead" -1; in "taken by test" -1`},
		{5, 1, `in "waits" -1`},
		{6, 2, `out1 "released by test" 0; in "dropped by the switch: done (program test)" -1`},
		{5, 1, `in "waits" -1`},
		{7, 2, `out2 "goes" 0; in "dropped by the switch: done (program test)" -1`},
		{8, 1, `in "rewritten by test" 1; out1 "rewritten by test" 0`},
		{1, 7, `in "moved" -1; out1 "moved" 0; out2 "moved" 0`}, // flooded
	} {
		r.send(0, roce(0, s.dst, s.psn, "x"))
		if got := r.peers(); got != s.want {
			t.Errorf("psn %d: %s, want %s", s.psn, got, s.want)
		}
	}
	r.send(0, roce(0, 1, 5, "x"))
	r.now = clock.Time(100)
	r.tick()
	if got := r.peers(); got != `out1 "held until its time" 0` {
		t.Errorf("at the deadline: %s", got)
	}
	r.Observe(false)
	r.send(0, roce(0, 1, 8, "x"))
	if got := r.peers(); got != "" {
		t.Errorf("notes without Observe: %s", got)
	}
}
