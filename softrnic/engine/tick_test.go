package engine

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Three queue pairs that each answer a long READ take turns, and no Tick builds more packets than
// its bound.
func TestTickIsFairAndBounded(t *testing.T) {
	const window, pairs = 16, 3
	small := func(c *Config) { c.Window = window }
	a, b := newSide(t, newEngine(t, "a", 1, macA, small, ipA)), newSide(t, newEngine(t, "b", 2, macB, small, ipB))
	p := connectPair(t, a, b, 0, verbs.MTU256)
	clients := []*QP{a.qp}
	for range pairs - 1 {
		x, err := a.e.CreateQP(a.pd, a.cq, a.cq, verbs.QPInit{})
		if err != nil {
			t.Fatal(err)
		}
		y, err := b.e.CreateQP(b.pd, b.cq, b.cq, verbs.QPInit{})
		if err != nil {
			t.Fatal(err)
		}
		connect(t, 0, x, y, 0, verbs.MTU256)
		connect(t, 0, y, x, 0, verbs.MTU256)
		clients = append(clients, x)
	}
	for i, q := range clients {
		wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{a.sge(i*20000, 20000)}, RemoteAddr: b.base, RKey: b.key}
		if err := q.PostSend(0, []verbs.SendWR{wr}, &a.out); err != nil {
			t.Fatal(err)
		}
	}
	p.exchange(a, b) // b has received all requests, and answers them in Tick
	left := map[wire.QPN]int{}
	for _, q := range clients {
		left[q.Num()] = (20000 + 255) / 256
	}
	var last wire.QPN
	run := 0
	for range 1000 {
		if b.e.Deadline() != clock.Never && b.e.Deadline() <= p.now {
			before := len(b.out.Frames)
			b.e.Tick(p.now, &b.out)
			if n := len(b.out.Frames) - before; n > maxTickFrames+window {
				t.Fatalf("a Tick built %d frames", n)
			}
		}
		for _, f := range b.out.Frames {
			fr := parse(t, f.Data)
			if q := fr.BTH.DestQP; q != last {
				last, run = q, 0
			}
			run++
			left[last]--
			waiting := 0
			for _, n := range left {
				if n > 0 {
					waiting++
				}
			}
			if waiting > 1 && run > 2*window {
				t.Fatalf("%d frames of one queue pair in a row while %d wait", run, waiting)
			}
		}
		if p.exchange(b, a)+p.exchange(a, b) == 0 && b.e.Deadline() > p.now {
			break
		}
	}
	for _, wc := range a.poll(t) {
		if wc.Status != verbs.Success {
			t.Errorf("%+v", wc)
		}
	}
	for q, n := range left {
		if n != 0 {
			t.Errorf("queue pair %#x: %d packets left", q, n)
		}
	}
}

// A Tick that reaches its bound is due again at once, and goes on with the queue pairs that had to
// wait.
func TestTickBoundKeepsTheRestDue(t *testing.T) {
	p := newPair(t, nil)
	p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 8)}, RemoteAddr: p.b.base, RKey: p.b.key})
	at := p.a.e.Deadline() // deadline of its retransmission timer
	p.a.out.Reset()
	for range maxTickFrames {
		p.a.out.Add(0, nil)
	}
	p.a.e.Tick(at, &p.a.out)
	if len(p.a.out.Frames) != maxTickFrames || p.a.e.Deadline() > at {
		t.Errorf("%d frames, deadline %v; want the queue pair still due at %v", len(p.a.out.Frames), p.a.e.Deadline(), at)
	}
	p.a.out.Reset()
	p.a.e.Tick(at, &p.a.out)
	if len(p.a.out.Frames) != 1 {
		t.Errorf("%d frames, want the retransmission", len(p.a.out.Frames))
	}
}

// A NIC that was busy gives back the memory of open packets, and then has no deadline. One that crashes
// has none either.
func TestMemoryOfOpenPackets(t *testing.T) {
	for _, crash := range []bool{false, true} {
		p := newPair(t, func(c *Config) { c.Open = true })
		for range 100 {
			p.post(t, p.a, verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{p.a.sge(0, 16<<10)}, RemoteAddr: p.b.base, RKey: p.b.key})
			p.settle(t)
		}
		if p.a.e.Deadline() > p.now.Add(trimEvery) {
			t.Fatalf("due at %v", p.a.e.Deadline())
		}
		if crash {
			p.a.e.Down(p.now)
		}
		p.run(t, p.now.Add(10*trimEvery))
		for _, s := range []*side{p.a, p.b} {
			if at := s.e.Deadline(); at != clock.Never {
				t.Errorf("crash %v: %s is due at %v", crash, s.e.cfg.Name, at)
			}
		}
	}
}
