package pipeline

import (
	"bytes"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// taker is a program that takes the frames of marked ports.
type taker struct {
	testProgram
	marks MarkedPorts
	taken []packetio.Frame
	// back: it resumes each frame at once, to port to.
	back bool
	to   int
}

func (k *taker) Taken() *MarkedPorts { return &k.marks }

func (k *taker) Ingress(c *Ctx, in int, f packetio.Frame) bool {
	if len(f.Data) == 61 {
		return false
	}
	f.Data, f.Port = bytes.Clone(f.Data), in
	k.taken = append(k.taken, f)
	if k.back {
		c.Resume(in, k.to, f, "resumed")
	}
	return true
}

// A program that decides about frames that come in is asked about frames of all protocols at marked
// ports, except those to groups and to the switch itself. What it resumes goes on behind what was
// resumed before, and the program sees its RoCEv2 packets then, also if it has named a port.
func TestIngress(t *testing.T) {
	k := &taker{to: -1}
	seen := 0
	k.packet = func(*Ctx, *Parsed) Verdict {
		seen++
		return Forward()
	}
	r := newRig(t, 4, k, nil)
	for i := range 4 {
		r.send(i, plain(mac(i), broadcast))
	}
	r.want("at a port without a mark", r.send(0, plain(mac(0), mac(1))), "[1]")
	k.marks.Add(0)
	r.want("to a group", r.send(0, plain(mac(0), broadcast)), "[1 2 3]")
	r.want("refused by the program", r.send(0, append(plain(mac(0), mac(1)), make([]byte, 61-len(plain(mac(0), mac(1))))...)), "[1]")
	r.want("taken", r.send(0, plain(mac(0), mac(1))), "[]")
	r.want("a RoCEv2 packet", r.send(0, roce(0, 1, 7, "payload")), "[]")
	if len(k.taken) != 2 || seen != 0 {
		t.Fatalf("%d frames were taken, the program saw %d packets", len(k.taken), seen)
	}
	r.out.Reset()
	r.Observe(true)
	r.Step(1, &r.out, func(c *Ctx) {
		for i, f := range k.taken {
			c.Resume(f.Port, -1+i*3, f, "found")
			clear(f.Data) // Resume has copied it
		}
		if len(r.out.Frames) != 0 {
			t.Error("a frame goes on within the call")
		}
	})
	if f := r.out.Frames; len(f) != 2 || f[0].Port != 1 || f[1].Port != 2 || !bytes.Equal(f[0].Data, plain(mac(0), mac(1))) || seen != 1 {
		t.Errorf("%d frames: %+v", len(f), f)
	}
	if n := r.Notes(); len(n) != 2 || n[0].Text != "found" {
		t.Errorf("notes %v", n)
	}
	k.back = true
	r.want("resumed at once", r.send(0, roce(0, 1, 7, "payload")), "[1]")
	r.want("nothing is resumed twice", r.send(1, plain(mac(1), mac(2))), "[2]")
	if seen != 2 {
		t.Errorf("the program saw %d packets", seen)
	}
	k.to = 3
	for _, act := range []struct {
		packet func(c *Ctx, p *Parsed) Verdict
		want   string
	}{
		{func(*Ctx, *Parsed) Verdict { return Forward() }, "[3]"},
		{func(*Ctx, *Parsed) Verdict { return Drop("seen") }, "[]"},
		{func(_ *Ctx, p *Parsed) Verdict { p.BTH.PSN++; return Rewrite() }, "[1]"},
		{func(c *Ctx, p *Parsed) Verdict {
			v := c.Hold(p, clock.Never)
			c.Release(v.ID, nil, "")
			return v
		}, "[1]"},
		{func(c *Ctx, p *Parsed) Verdict {
			f := p.Frame
			c.Emit(&f, "")
			return Consume()
		}, "[1]"},
	} {
		k.packet = act.packet
		r.want("through a named port", r.send(0, roce(0, 1, 7, "payload")), act.want)
	}
	r.want("the next frame", r.send(1, plain(mac(1), mac(2))), "[2]")
	k.to = 9
	r.want("to no port", r.send(0, plain(mac(0), mac(1))), "[]")
	k.marks.Remove(0)
	r.want("the mark has gone", r.send(0, plain(mac(0), mac(1))), "[1]")
}
