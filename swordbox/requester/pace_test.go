package requester

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// left is a frame of the switch: when it left, and its length.
type left struct {
	at clock.Time
	n  int
}

// leaving runs a rig for a time, and returns the frames of the switch that are on their way at the end
// of each step.
func (r *rig) leaving(d time.Duration) (list []left) {
	seen := make(map[*byte]bool)
	note := func() {
		for _, f := range r.air {
			if f.to >= 0 && !seen[&f.data[0]] {
				seen[&f.data[0]] = true
				list = append(list, left{r.now, len(f.data)})
			}
		}
	}
	note()
	for until := r.now.Add(d); r.step(until); {
		note()
	}
	return list
}

// bounded checks that the frames obey a token bucket: those between any two moments are at most the
// burst, one frame and what the rate allows in between.
func bounded(t *testing.T, list []left, rate int64, burst int) {
	t.Helper()
	for i := range list {
		sum := 0
		for _, f := range list[i:] {
			sum += f.n
			allowed := int64(burst+f.n) + rate/8*int64(f.at.Sub(list[i].at))/int64(time.Second) + 1
			if int64(sum) > allowed {
				t.Fatalf("%d bytes left between %v and %v; the cap allows %d", sum, list[i].at, f.at, allowed)
			}
		}
	}
}

// With a cap, requests leave at its rate, in order, also under loss and with retransmissions; without
// loss the rate is used up.
func TestCap(t *testing.T) {
	const rate, n = 100_000_000, 400
	for seed, loss := range []int{0, 50} {
		r := newRig(t, uint64(seed), Config{Ring: 16, Waiting: n, RTO: 50 * time.Microsecond, Silence: time.Hour, Naks: 1000})
		r.chances[0] = loss
		r.attach(7, 4)
		r.c.SetLimits(Limits{Rate: rate})
		for i := range n {
			op, length := wire.RCFetchAdd, 8
			if i%2 == 0 {
				op, length = wire.RCWriteOnly, 1000
			}
			if !r.submit(op, length) {
				t.Fatal("no room")
			}
		}
		list := r.leaving(time.Second)
		r.check(uint64(seed))
		bounded(t, list, rate, usualBurst)
		s := r.c.Stats()
		if s.Pauses == 0 || s.Bytes == 0 || loss > 0 && s.Resent == 0 {
			t.Errorf("%+v", s)
		}
		sum := 0
		for _, f := range list {
			sum += f.n
		}
		took := list[len(list)-1].at.Sub(list[0].at)
		if want := time.Duration(int64(sum-usualBurst) * 8 * int64(time.Second) / rate); loss == 0 && (took > want+want/20 || uint64(sum) != s.Bytes) {
			t.Errorf("%d bytes in %v, want %v; counted %d", sum, took, want, s.Bytes)
		}
	}
}

// A retransmission that the cap holds back is no reason for a timeout: the timer runs when it has left.
func TestCapHoldsRetransmissions(t *testing.T) {
	r := newRig(t, 1, Config{Ring: 32, Waiting: 32, RTO: time.Millisecond})
	r.attach(7, 4)
	r.c.SetLimits(Limits{Rate: MinRate})
	r.s.dead = true
	for range 32 {
		r.submit(wire.RCWriteOnly, 1000)
	}
	r.run(300 * time.Microsecond) // the burst is gone: 16 of them
	r.air, r.s.dead = nil, false
	r.run(10 * time.Second)
	r.check(1)
	if s := r.c.Stats(); s.Failures != 0 || s.Timeouts > 3 {
		t.Errorf("%+v", s)
	}
}

// A user that keeps its requests itself (SubmitOnce) sees how many it can send, and is called at the end of
// a pause.
func TestSpareUnderACap(t *testing.T) {
	r := newRig(t, 1, Config{Ring: 512, Waiting: 1})
	r.attach(7, 4)
	if r.c.Spare() != 512 {
		t.Errorf("without a cap %d", r.c.Spare())
	}
	r.c.SetLimits(Limits{Rate: 8_000_000, Burst: 10_000}) // a byte in a microsecond
	sent := 0
	for r.c.Spare() > 0 {
		before := r.c.Spare()
		if !r.submit(wire.RCWriteOnly, 1024) {
			t.Fatal("no room")
		}
		if sent++; r.c.Spare() < before-1 {
			t.Errorf("after %d requests %d can leave; before the last one it were %d", sent, r.c.Spare(), before)
		}
	}
	if sent != 10 || r.c.SendsNow(wire.RCReadRequest, 0) {
		t.Errorf("%d requests of 1098 bytes have left of a burst of 10000", sent)
	}
	if d := r.c.Deadline().Sub(r.now); d != 980*time.Microsecond {
		t.Errorf("the pause ends in %v", d)
	}
	r.run(time.Millisecond)
	if r.c.Spare() != 1 || !r.c.SendsNow(wire.RCReadRequest, 0) {
		t.Errorf("after the pause %d", r.c.Spare())
	}
}

// Requests have the code point of the limits, also when they are sent again; the ECN field stays.
func TestDSCP(t *testing.T) {
	r := newRig(t, 1, Config{RTO: time.Millisecond})
	r.attach(7, 4)
	r.c.SetLimits(Limits{DSCP: 46})
	r.s.dead = true
	f := wire.Frame{}
	f.BTH.Opcode, f.IPv4.TOS, f.Payload = wire.RCWriteOnly, 2, payload(0, 8)
	f.RETH.Length = 8
	r.sw.Step(r.now, &r.out, func(c *pipeline.Ctx) { r.c.Submit(c, &f, Tag{}) })
	class := func() byte {
		defer r.out.Reset()
		if len(r.out.Frames) != 1 {
			t.Fatalf("%d frames", len(r.out.Frames))
		}
		return r.out.Frames[0].Data[15]
	}
	if c := class(); c != 46<<2|2 {
		t.Errorf("class %#x", c)
	}
	r.sw.Tick(r.now.Add(2*time.Millisecond), &r.out)
	if c := class(); c != 46<<2|2 {
		t.Errorf("sent again with class %#x", c)
	}
}
