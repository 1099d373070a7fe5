package pipeline

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// withProgram returns a rig with three hosts whose ports the switch knows.
func withProgram(t *testing.T, packet func(*Ctx, *Parsed) Verdict) (*rig, *testProgram) {
	p := &testProgram{packet: packet}
	r := newRig(t, 3, p, nil)
	for i := range 3 {
		r.send(i, plain(mac(i), broadcast))
	}
	r.Observe(true)
	return r, p
}

func (r *rig) notes() string {
	var list []string
	for _, n := range r.Notes() {
		where := "in"
		if n.Out >= 0 {
			where = "out"
		}
		list = append(list, where+" "+n.Text)
	}
	return strings.Join(list, "; ")
}

func TestVerdictDrop(t *testing.T) {
	r, _ := withProgram(t, func(_ *Ctx, p *Parsed) Verdict {
		if p.BTH.PSN == 7 {
			return Drop("unlucky")
		}
		return Forward()
	})
	r.want("other", r.send(0, roce(0, 1, 6, "x")), "[1]")
	if r.notes() != "" {
		t.Errorf("forwarding made notes: %s", r.notes())
	}
	r.want("dropped", r.send(0, roce(0, 1, 7, "x")), "[]")
	if n := r.Port(0).Drops["unlucky"]; n != 1 || r.notes() != "in dropped by the switch: unlucky" {
		t.Errorf("%d drops, notes %q", n, r.notes())
	}
}

func TestVerdictRewrite(t *testing.T) {
	r, _ := withProgram(t, func(_ *Ctx, p *Parsed) Verdict {
		p.Eth.Dst = mac(2)
		p.IPv4.Dst = [4]byte{10, 0, 0, 2}
		p.BTH.DestQP, p.BTH.PSN = 0x22, 0xffffff
		p.Payload = p.Payload[:4]
		return Rewrite().With("moved to host 2")
	})
	before := roce(0, 1, 1, "payload!")
	in := slices.Clone(before)
	r.want("rewritten", r.send(0, in), "[2]")
	want := roceFrame(0, 2, 0xffffff, "payl")
	want.BTH.DestQP = 0x22
	if got := r.out.Frames[0].Data; !bytes.Equal(got, want.AppendTo(nil)) || !wire.CheckICRC(got) {
		t.Errorf("got %x", got)
	}
	if !bytes.Equal(in, before) {
		t.Error("the received bytes were changed")
	}
	if r.notes() != "in moved to host 2; out moved to host 2" {
		t.Errorf("notes %q", r.notes())
	}

	in[len(in)-1] ^= 1
	r.want("damaged", r.send(0, in), "[]")
	if r.Port(0).Drops[ReasonBadICRC] != 1 {
		t.Errorf("drops %v", r.Port(0).Drops)
	}
}

func TestVerifyKeepsDamagedPacketsFromTheProgram(t *testing.T) {
	r, p := withProgram(t, func(*Ctx, *Parsed) Verdict { return Drop("seen") })
	p.spec.Verify = true
	r.program.spec.Verify = true
	in := roce(0, 1, 1, "x")
	r.want("good", r.send(0, in), "[]")
	in[len(in)-1] ^= 1
	r.want("bad", r.send(0, in), "[1]")
}

func TestEmit(t *testing.T) {
	r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		ack := p.Frame
		ack.Eth.Src, ack.Eth.Dst = p.Eth.Dst, p.Eth.Src
		ack.BTH.Opcode, ack.Payload = wire.RCAck, nil
		ack.AETH = wire.AETH{Syndrome: wire.AckNoCredits, MSN: 1}
		if !c.Emit(&ack, "made ACK") || !c.Emit(&p.Frame, "copy") {
			t.Error("not sent")
		}
		return Forward()
	})
	r.want("ack, copy, packet", r.send(0, roce(0, 1, 5, "x")), "[0 1 1]")
	var f wire.Frame
	if err := wire.ParseFrame(r.out.Frames[0].Data, &f); err != nil || f.BTH.Opcode != wire.RCAck || !wire.CheckICRC(r.out.Frames[0].Data) {
		t.Errorf("ACK: %v %+v", err, f)
	}
	if r.notes() != "out made ACK; out copy" {
		t.Errorf("notes %q", r.notes())
	}
	if c, _ := r.Counters(); c.Emitted != 2 {
		t.Errorf("counters %+v", c)
	}
}

func TestEmitIsBounded(t *testing.T) {
	r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		for left := maxEmit; ; left-- {
			if c.EmitsLeft() != left {
				t.Fatalf("%d may be made, want %d", c.EmitsLeft(), left)
			}
			if sent := c.Emit(&p.Frame, ""); sent != (left > 0) {
				t.Fatalf("sent %t with %d left", sent, left)
			} else if !sent {
				return Drop("enough")
			}
		}
	})
	r.send(0, roce(0, 1, 5, "x"))
	if _, lost := r.Counters(); len(r.out.Frames) != maxEmit || lost[ReasonEmitLimit] != 1 {
		t.Errorf("%d frames, lost %v", len(r.out.Frames), lost)
	}
}

func TestHoldUntilDeadline(t *testing.T) {
	r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict { return c.Hold(p, c.Now+clock.Time(p.BTH.PSN)) })
	in := roce(0, 1, 20, "late")
	want := slices.Clone(in)
	r.want("held", r.send(0, in), "[]")
	clear(in) // the switch keeps a copy
	r.want("held too", r.send(0, roce(0, 1, 10, "early")), "[]")
	if r.Deadline() != 10 {
		t.Errorf("deadline %v", r.Deadline())
	}
	r.now = 9
	r.want("not yet", r.tick(), "[]")
	r.now = 10
	r.want("first", r.tick(), "[1]")
	r.now = 30
	r.want("second", r.tick(), "[1]")
	if !bytes.Equal(r.out.Frames[0].Data, want) || r.Deadline() != clock.Never {
		t.Errorf("released %x, deadline %v", r.out.Frames[0].Data, r.Deadline())
	}
}

// Packet 1 is held until a program acts; packet 2 releases it rewritten, packet 3 unchanged, packet
// 4 discards it.
func TestHoldReleasedByProgram(t *testing.T) {
	var id HoldID
	r, _ := withProgram(t, func(c *Ctx, p *Parsed) Verdict {
		switch p.BTH.PSN {
		case 1:
			v := c.Hold(p, clock.Never)
			id = v.ID
			return v
		case 2:
			f := p.Frame
			f.BTH.PSN = 99
			if !c.Holding(id) || !c.Release(id, &f, "released") || c.Release(id, nil, "") {
				t.Error("release")
			}
		case 3:
			if !c.Release(id, nil, "") {
				t.Error("release as it is")
			}
		case 4:
			if !c.Discard(id, "stale") || c.Discard(id, "stale") || c.Holding(id) {
				t.Error("discard")
			}
		}
		return Forward()
	})
	hold := roce(0, 1, 1, "held")
	r.send(0, hold)
	if r.Deadline() != clock.Never {
		t.Errorf("deadline %v", r.Deadline())
	}
	r.want("rewritten, then 2", r.send(0, roce(0, 1, 2, "x")), "[1 1]")
	var f wire.Frame
	if wire.ParseFrame(r.out.Frames[0].Data, &f) != nil || f.BTH.PSN != 99 {
		t.Errorf("released %+v", f.BTH)
	}
	r.send(0, hold)
	r.want("as it is, then 3", r.send(0, roce(0, 1, 3, "x")), "[1 1]")
	if !bytes.Equal(r.out.Frames[0].Data, hold) {
		t.Error("released bytes differ")
	}
	r.send(0, hold)
	r.want("only 4", r.send(0, roce(0, 1, 4, "x")), "[1]")
	if r.Port(0).Drops["stale"] != 1 {
		t.Errorf("drops %v", r.Port(0).Drops)
	}
}

func TestHoldIsBounded(t *testing.T) {
	p := &testProgram{packet: func(c *Ctx, p *Parsed) Verdict { return c.Hold(p, clock.Never) }}
	r := newRig(t, 2, p, func(c *Config) { c.MaxHeld = 3 })
	for range 5 {
		r.send(0, roce(0, 1, 1, "x"))
	}
	if n := r.Port(0).Drops[ReasonHoldFull]; n != 2 {
		t.Errorf("%d refused, want 2", n)
	}
}

func TestTickOfProgram(t *testing.T) {
	p := &testProgram{deadline: 100}
	p.tick = func(c *Ctx) {
		p.deadline = clock.Never
		c.Emit(roceFrame(9, 1, 1, "from the switch"), "")
	}
	r := newRig(t, 2, p, nil)
	r.send(1, plain(mac(1), broadcast))
	r.now = 99
	r.want("early", r.tick(), "[]")
	r.now = 100
	r.want("due", r.tick(), "[1]")
	if r.Deadline() != clock.Never {
		t.Errorf("deadline %v", r.Deadline())
	}
}

func TestReasonsAreBounded(t *testing.T) {
	n := 0
	r, _ := withProgram(t, func(*Ctx, *Parsed) Verdict {
		n++
		return Drop(Reason(strings.Repeat("x", n)))
	})
	for range 2 * maxReasons {
		r.send(0, roce(0, 1, 1, "x"))
	}
	if d := r.Port(0).Drops; len(d) > maxReasons+1 || d[ReasonOther] == 0 {
		t.Errorf("%d reasons, %d others", len(d), d[ReasonOther])
	}
}

func TestConfigIsChecked(t *testing.T) {
	for _, c := range []Config{{Ports: 1}, {Program: &testProgram{}}, {Ports: MaxPorts + 1, Program: &testProgram{}}, {Ports: 1, Program: &testProgram{}, MaxHeld: -1}} {
		if _, err := New(c); err == nil {
			t.Errorf("%+v passes", c)
		}
	}
}

func TestBudget(t *testing.T) {
	s := Spec{Parts: []Part{
		{Tables: []TableSpec{{Name: "conns", KeyBits: 64, ValueBits: 64, Entries: 4096}}},
		{Registers: []RegisterSpec{{Name: "psn", Width: 24, Entries: 4096}}},
	}}
	if got, want := s.Bits(), 4096*(128+24); got != want {
		t.Errorf("Bits = %d, want %d", got, want)
	}
}

// A program that gets a super-frame may return Apart; the packets are counted once.
func TestVerdictApart(t *testing.T) {
	f, packets := superOf(3)
	var seen []string
	r, p := withProgram(t, func(_ *Ctx, p *Parsed) Verdict {
		seen = append(seen, fmt.Sprint(p.Packets, p.BTH.PSN))
		if p.Packets == 1 && p.BTH.PSN == 1 {
			return Drop("odd")
		}
		if p.Packets > 1 {
			b, size := p.Burst()
			for i, want := range packets {
				if got := b[i*size : min(len(b), (i+1)*size)]; !bytes.Equal(got, want[len(want)-len(got):]) {
					t.Errorf("packet %d of the burst: %x, want the end of %x", i, got, want)
				}
			}
		}
		return Apart()
	})
	r.want("apart", r.sendFrame(0, f), "[1 1]")
	if fmt.Sprint(seen) != "[3 0 1 0 1 1 1 2]" || p.spec.Split {
		t.Errorf("seen %v", seen)
	}
	if !bytes.Equal(r.out.Frames[0].Data, packets[0]) || !bytes.Equal(r.out.Frames[1].Data, packets[2]) {
		t.Errorf("frames %x", r.out.Frames[1].Data)
	}
	if c := r.Port(0); c.RxPackets != 4 || c.RxRoCE != 3 || c.Drops["odd"] != 1 {
		t.Errorf("%+v", c)
	}
	r.want("single", r.send(0, roce(0, 1, 9, "x")), "[1]")
}

// A super-frame of more packets than any sender makes cannot be taken apart: it is forwarded as it
// is, once.
func TestVerdictApartOfTooMany(t *testing.T) {
	f, _ := superOf(129)
	r, _ := withProgram(t, func(*Ctx, *Parsed) Verdict { return Apart() })
	r.want("too many", r.sendFrame(0, f), "[1]")
	if got := r.out.Frames[0]; got.SegSize != f.SegSize || !bytes.Equal(got.Data, f.Data) {
		t.Errorf("%d bytes, %d a packet", len(got.Data), got.SegSize)
	}
}
