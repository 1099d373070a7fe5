package requester

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// once submits a WRITE of 16 bytes by SubmitOnce.
func (r *rig) once() (ok bool) {
	f := wire.Frame{}
	f.BTH.Opcode, f.Payload = wire.RCWriteOnly, payload(r.next, 16)
	f.RETH = wire.RETH{VA: r.next, RKey: 9, Length: 16}
	r.do(func(c *pipeline.Ctx) { ok = r.c.SubmitOnce(c, &f, Tag{PSN: wire.PSN(r.next)}) })
	if ok {
		r.next++
	}
	return ok
}

// Under random loss, duplication and reordering WRITEs without copies keep their places between
// READs, across the wrap of PSNs: each is executed once, whole or, at most as often as the switch
// has sent it again, without its bytes.
func TestWritesWithoutCopies(t *testing.T) {
	for seed := range uint64(100) {
		if seed++; *seedFlag != 0 && seed != *seedFlag {
			continue
		}
		p := rand.New(rand.NewPCG(seed, 9))
		r := newRig(t, seed, Config{Ring: 1 + p.IntN(16), Waiting: 1 + p.IntN(16), RTO: 20 * time.Microsecond, Silence: time.Hour, Naks: 1000})
		r.attach(wire.PSN(0xffffff-p.IntN(40)), 1+p.IntN(4))
		calm := seed%5 == 0
		if !calm {
			r.chances = [3]int{p.IntN(100), p.IntN(100), p.IntN(200)}
		}
		for tries := 0; r.next < 120 && tries < 100_000; tries++ {
			if p.IntN(4) == 0 {
				r.submit(wire.RCReadRequest, p.IntN(20))
			} else {
				r.once()
			}
			for range p.IntN(4) {
				r.step(r.now + 100_000)
			}
		}
		r.run(200 * time.Millisecond)
		if r.failed > 0 || len(r.done) != int(r.next) || r.next < 120 {
			t.Fatalf("seed %d: %d of %d requests ended: %+v", seed, len(r.done), r.next, r.c.Stats())
		}
		for i, id := range r.s.executed {
			if id != uint64(i) {
				t.Fatalf("seed %d: executed %v", seed, r.s.executed)
			}
		}
		if n := uint64(r.s.empty); n > r.c.Stats().Emptied || calm && n > 0 {
			t.Errorf("seed %d: %d WRITEs were executed without bytes; %+v", seed, n, r.c.Stats())
		}
	}
}

// A WRITE without a copy is refused while requests wait or are sent again; its retransmission has
// its PSN, its address and no bytes.
func TestSubmitOnce(t *testing.T) {
	r := quiet(t, Config{Ring: 2, Waiting: 2}, 5, 1)
	if one, two, three := r.once(), r.once(), r.once(); !one || !two || three {
		t.Error("two WRITEs are sent, and there is no room for a third")
	}
	r.wantSends("at first", "5"+writeOnly, "6"+writeOnly)
	var again []wire.Frame
	r.now = r.c.Deadline()
	r.sw.Tick(r.now, &r.out)
	for _, f := range r.out.Frames {
		var q wire.Frame
		if wire.ParseFrame(f.Data, &q) != nil || !wire.CheckICRC(f.Data) {
			t.Fatalf("%x", f.Data)
		}
		again = append(again, q)
	}
	r.out.Reset()
	if len(again) != 2 || slices.ContainsFunc(again, func(f wire.Frame) bool {
		return len(f.Payload) != 0 || f.RETH.Length != 0 || f.RETH.VA != uint64(f.BTH.PSN)-5
	}) {
		t.Errorf("sent again: %+v", again)
	}
	if s := r.c.Stats(); s.Emptied != 2 || s.Resent != 2 || s.NoRoom != 1 {
		t.Errorf("%+v", s)
	}
	r.ack(6, wire.AckNoCredits)
	one, two := r.submit(wire.RCReadRequest, 4), r.submit(wire.RCReadRequest, 4)
	if !one || !two || r.once() {
		t.Error("a WRITE without a copy overtakes a READ that waits")
	}
}
