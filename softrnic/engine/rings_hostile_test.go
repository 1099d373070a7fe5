package engine

import (
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// An entry that cannot be executed completes with an error behind all earlier entries, and the queue
// pair goes to the error state; what is behind it is not executed.
func TestRingRefuses(t *testing.T) {
	foreign := func(r *ringed) (cq, qp uint32) {
		pd, err := r.e.AllocPD()
		if err != nil {
			t.Fatal(err)
		}
		c, err := r.e.CreateCQ(8)
		if err != nil {
			t.Fatal(err)
		}
		mr, err := r.e.RegMR(pd, make([]byte, 4096), verbs.LocalWrite)
		if err != nil {
			t.Fatal(err)
		}
		region, err := mr.Region()
		if err != nil {
			t.Fatal(err)
		}
		q, err := r.e.CreateQP(pd, c, c, verbs.QPInit{})
		if err != nil {
			t.Fatal(err)
		}
		if err := q.UseRing(sendring.Config{Addr: region.Base(), LKey: region.LKey(), Blocks: 8, Managed: true}); err != nil {
			t.Fatal(err)
		}
		return c.ID(), uint32(q.Num())
	}
	for name, c := range map[string]struct {
		entry  func(r *ringed, q *QP) sendring.Entry
		cfg    sendring.Config
		status verbs.Status
	}{
		"unknown opcode":   {entry: func(*ringed, *QP) sendring.Entry { return sendring.Entry{Op: 0x05} }},
		"WAIT, no queue":   {entry: func(*ringed, *QP) sendring.Entry { return sendring.Entry{Op: sendring.Wait, Object: 999} }},
		"ENABLE, no queue": {entry: func(*ringed, *QP) sendring.Entry { return sendring.Entry{Op: sendring.Enable, Object: 2, Count: 1} }},
		"ENABLE, unmanaged": {entry: func(_ *ringed, q *QP) sendring.Entry {
			return sendring.Entry{Op: sendring.Enable, Object: uint32(q.Num()), Count: 9}
		}},
		"WAIT, foreign": {entry: func(r *ringed, _ *QP) sendring.Entry {
			cq, _ := foreign(r)
			return sendring.Entry{Op: sendring.Wait, Object: cq}
		}},
		"ENABLE, foreign": {entry: func(r *ringed, _ *QP) sendring.Entry {
			_, qp := foreign(r)
			return sendring.Entry{Op: sendring.Enable, Object: qp, Count: 1}
		}},
		"RECV_ENABLE, no queue": {entry: func(*ringed, *QP) sendring.Entry { return sendring.Entry{Op: sendring.RecvEnable, Object: 2, Count: 1} }},
		"RECV_ENABLE, none posted": {entry: func(_ *ringed, q *QP) sendring.Entry {
			return sendring.Entry{Op: sendring.RecvEnable, Object: uint32(q.Num()), Count: 1}
		}},
		"RECV_ENABLE, foreign": {entry: func(r *ringed, _ *QP) sendring.Entry {
			_, qp := foreign(r)
			other, n := r.e.Tables.qps[wire.QPN(qp)], 0
			if err := other.ToInit(verbs.ToInit{}); err != nil {
				r.t.Fatal(err)
			}
			for other.PostRecv(make([]verbs.RecvWR, 1)) == nil {
				n++
			}
			return sendring.Entry{Op: sendring.RecvEnable, Object: qp, Count: uint32(n) + 1}
		}},
		"index":   {cfg: sendring.Config{Checked: true}, entry: func(_ *ringed, q *QP) sendring.Entry { return sendring.Entry{Index: 4, QPN: q.Num()} }},
		"QPN":     {cfg: sendring.Config{Checked: true}, entry: func(_ *ringed, q *QP) sendring.Entry { return sendring.Entry{Index: 1, QPN: q.Num() + 1} }},
		"opmod":   {cfg: sendring.Config{Checked: true}, entry: func(_ *ringed, q *QP) sendring.Entry { return sendring.Entry{Index: 1, QPN: q.Num(), OpMod: 1} }},
		"CAS, 4":  {entry: func(r *ringed, _ *QP) sendring.Entry { return r.entry(sendring.CmpSwap, 0, dataAt, dataAt, 4) }},
		"CAS odd": {entry: func(r *ringed, _ *QP) sendring.Entry { return r.entry(sendring.CmpSwap, 0, dataAt+1, dataAt, 8) }},
		"reaches over the limit": {entry: func(r *ringed, _ *QP) sendring.Entry {
			e := r.entry(sendring.Read, 0, dataAt, dataAt, 8)
			e.NSGE = 12
			return e
		}},
		"local key": {status: verbs.LocProtErr, entry: func(r *ringed, _ *QP) sendring.Entry {
			e := r.entry(sendring.Read, 0, dataAt, dataAt, 8)
			e.SGL[0].LKey++
			return e
		}},
	} {
		r := newRinged(t)
		r.t = t
		q := r.add(ringA, c.cfg)
		if c.status == verbs.Success {
			c.status = verbs.LocQPOpErr
		}
		first := r.entry(sendring.Read, sendring.Signalled, dataAt, dataAt+8, 8)
		first.QPN = q.Num()
		r.put(ringA, 0, first)
		r.put(ringA, 1, c.entry(r, q))
		last := r.entry(sendring.Write, sendring.Signalled, dataAt+16, dataAt+8, 8)
		last.QPN, last.Index = q.Num(), 2
		r.put(ringA, 2, last)
		r.bell(q, 3)
		wcs := r.poll(t)
		if len(wcs) < 2 || wcs[0].Status != verbs.Success || wcs[0].ID != 0 || wcs[1].Status != c.status || wcs[1].ID != 1 {
			t.Errorf("%s: completions %+v", name, wcs)
			continue
		}
		if q.q.State() != verbs.StateError {
			t.Errorf("%s: the state is %v", name, q.q.State())
		}
		state, _, _, _ := q.RingState()
		if state != sendring.Ended && c.status == verbs.LocQPOpErr {
			t.Errorf("%s: the ring is %v", name, state)
		}
		if err := q.Doorbell(r.now, 9); err != nil {
			t.Errorf("%s: doorbell: %v", name, err)
		}
		r.run(second)
	}
}

// UseRing and Doorbell refuse what cannot work, and PostSend a queue pair with a ring.
func TestUseRingRefuses(t *testing.T) {
	r := newRinged(t)
	cfg := sendring.Config{Addr: r.base, LKey: r.lkey, Blocks: 16}
	q, err := r.e.CreateQP(r.pd, r.cq, r.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func(c *sendring.Config){
		"blocks": func(c *sendring.Config) { c.Blocks = 12 }, "none": func(c *sendring.Config) { c.Blocks = 0 },
		"too many": func(c *sendring.Config) { c.Blocks = 1 << 16 }, "address": func(c *sendring.Config) { c.Addr += 8 },
		"prefetch": func(c *sendring.Config) { c.Prefetch = 65 }, "key": func(c *sendring.Config) { c.LKey++ },
		"length": func(c *sendring.Config) { c.Blocks = 2048 },
	} {
		bad := cfg
		if change(&bad); q.UseRing(bad) == nil {
			t.Errorf("%s: accepted", name)
		}
	}
	if err := q.Doorbell(r.now, 1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("doorbell without a ring: %v", err)
	}
	if err := q.UseRing(cfg); err != nil {
		t.Fatal(err)
	}
	if err := q.UseRing(cfg); !errors.Is(err, verbs.ErrBusy) {
		t.Errorf("second ring: %v", err)
	}
	if err := q.PostSend(r.now, []verbs.SendWR{{}}, &r.out); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("post: %v", err)
	}
	managed := r.add(ringB, sendring.Config{Managed: true})
	if err := managed.Doorbell(r.now, 1); !errors.Is(err, verbs.ErrInvalid) {
		t.Errorf("doorbell of a managed ring: %v", err)
	}
}

// A doorbell in front of RTS takes effect at RTS; RESET starts the ring again at index 0; a fault
// that fails the queue pair stops a program that loops for ever.
func TestRingStates(t *testing.T) {
	r := newRinged(t)
	q, err := r.e.CreateQP(r.pd, r.cq, r.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.UseRing(sendring.Config{Addr: r.base, LKey: r.lkey, Blocks: 16}); err != nil {
		t.Fatal(err)
	}
	r.put(ringA, 0, sendring.Entry{Op: sendring.NOP, Flags: sendring.Signalled})
	for range 2 {
		r.bell(q, 1)
		r.want("in front of RTS")
		connect(t, r.now, q, q, 0, verbs.MTU1024)
		r.run(second)
		r.want("in RTS", verbs.Success)
		if err := q.ToReset(); err != nil {
			t.Fatal(err)
		}
	}
	loop := r.endless()
	r.runFor(int64(second) / 1000)
	_, before, _, _ := loop.RingState()
	if before < 1000 {
		t.Fatalf("the endless program has executed %d entries", before)
	}
	if err := r.e.FailQP(r.now, loop.Num(), &r.out); err != nil {
		t.Fatal(err)
	}
	r.run(second)
	if state, _, _, _ := loop.RingState(); state != sendring.Ended {
		t.Errorf("the ring is %v", state)
	}
	if err := loop.Destroy(); err != nil {
		t.Fatal(err)
	}
	r.e.Down(0)
	if err := loop.Doorbell(r.now, 2); !errors.Is(err, verbs.ErrClosed) {
		t.Errorf("doorbell of a NIC that is down: %v", err)
	}
}

// endless starts a program that enables itself for ever: its ENABLE has counts of 16 bits and is
// always one lap ahead, because two ENABLEs in one lap are half of the index space apart.
func (r *ringed) endless() *QP { return r.endlessAt(0) }

// endlessAt is endless with a limit of entries a second.
func (r *ringed) endlessAt(rate int) *QP {
	const blocks = 1 << 9
	q := r.add(ringB, sendring.Config{Managed: true, Counts16: true, Blocks: blocks, Rate: rate})
	master := r.add(ringA, sendring.Config{})
	// Each entry enables all of the next laps: its count is its own index plus a quarter of the
	// index space, in each of the laps that begin there.
	for i := range blocks {
		r.put(ringB, i, sendring.Entry{Op: sendring.Enable, Object: uint32(q.Num()), Count: uint32(i%4+1) << 14})
	}
	r.put(ringA, 0, sendring.Entry{Op: sendring.Enable, Object: uint32(q.Num()), Count: 4})
	if err := master.Doorbell(r.now, 1); err != nil {
		r.t.Fatal(err)
	}
	return q
}

// runFor lets virtual time pass; more may be due.
func (r *ringed) runFor(d int64) {
	end := r.now + clock.Time(d)
	for r.e.Deadline() <= end {
		r.now = max(r.now, r.e.Deadline())
		r.e.Tick(r.now, &r.out)
	}
	r.now = end
}

// A program that loops for ever takes the time that its entries take in hardware, and one round of
// the NIC executes no more than the budget: another queue pair works on.
func TestEndlessRing(t *testing.T) {
	r := newRinged(t)
	loop := r.endless()
	other, err := r.e.CreateQP(r.pd, r.cq, r.cq, verbs.QPInit{})
	if err != nil {
		t.Fatal(err)
	}
	connect(t, r.now, other, other, 0, verbs.MTU1024)
	for i := range 100 {
		if err := other.PostSend(r.now, []verbs.SendWR{{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{r.sge(dataAt, 8)}, RemoteAddr: r.base + dataAt + 8, RKey: r.key}}, &r.out); err != nil {
			t.Fatal(err)
		}
		_, before, _, _ := loop.RingState()
		r.e.Tick(r.now, &r.out)
		_, after, _, _ := loop.RingState()
		if after-before > ringBudget {
			t.Fatalf("round %d: %d entries in one round", i, after-before)
		}
		r.want("the other queue pair", verbs.Success)
		r.runFor(1000)
	}
	_, ran, _, _ := loop.RingState()
	if c := r.e.Counters(); ran < 200 || ran > 400 || c.RingThrottle == 0 {
		t.Errorf("%d entries in 100 µs, throttled %d times", ran, c.RingThrottle)
	}
}

// A fault of the queue pair stops a ring that executes itself for ever.
func TestEndlessRingStops(t *testing.T) {
	r := newRinged(t)
	loop := r.endless()
	r.runFor(10_000)
	_, before, _, _ := loop.RingState()
	if err := r.e.FailQP(r.now, loop.Num(), &r.out); err != nil {
		t.Fatal(err)
	}
	entries := r.e.Counters().RingEntries
	r.runFor(100_000)
	state, after, _, _ := loop.RingState()
	if n := r.e.Counters().RingEntries; before == 0 || after != before || state != sendring.Ended || n != entries {
		t.Errorf("the ring was at %d, and is %v at %d; %d more entries", before, state, after, n-entries)
	}
}

// No bytes in a ring make the NIC panic, reach outside of the protection domain, complete an entry
// twice or out of order.
func TestRingGarbage(t *testing.T) {
	for seed := range uint64(300) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		r := newRinged(t)
		guard := make([]byte, 4096)
		pd, _ := r.e.AllocPD()
		if _, err := r.e.RegMR(pd, guard, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteAtomic); err != nil {
			t.Fatal(err)
		}
		q := r.add(ringA, sendring.Config{Prefetch: 1 + rnd.IntN(8), Counts16: rnd.IntN(2) == 0})
		m := r.add(ringB, sendring.Config{Managed: true})
		ops := []sendring.Opcode{0, 1, 8, 9, 10, 11, 15, 16, 17, 18, 20, 21, 23, 24, 25}
		for block := range 32 {
			at := ringA + block%16*64 + block/16*ringB
			for i := range 64 {
				r.buf[at+i] = byte(rnd.Uint32())
			}
			if rnd.IntN(8) > 0 { // plausible
				e := r.entry(ops[rnd.IntN(len(ops))], sendring.Flags(rnd.Uint32()), rnd.IntN(8192)&^7, rnd.IntN(8192), 8)
				e.Object = []uint32{r.cq.ID(), uint32(m.Num()), uint32(q.Num()), rnd.Uint32N(4)}[rnd.IntN(4)]
				e.Count, e.SwapAdd, e.Compare = rnd.Uint32N(40), rnd.Uint64(), rnd.Uint64()
				copy(r.buf[at:], e.AppendTo(nil))
			}
		}
		if err := q.Doorbell(r.now, 1+rnd.Uint32N(64)); err != nil {
			t.Fatal(err)
		}
		r.runFor(int64(second) / 1000)
		next := map[uint64]uint64{}
		for _, wc := range r.poll(t) {
			if wc.Status == verbs.Success && (wc.Opcode == verbs.WCRecv || wc.Opcode == verbs.WCRecvWriteImm) {
				continue
			}
			if wc.ID < next[uint64(wc.QPN)] {
				t.Fatalf("seed %d: %+v after index %d", seed, wc, next[uint64(wc.QPN)])
			}
			next[uint64(wc.QPN)] = wc.ID + 1
		}
		for _, b := range guard {
			if b != 0 {
				t.Fatalf("seed %d: memory of another protection domain was written", seed)
			}
		}
	}
}

// A rate limits a ring, however often the NIC looks at it, and also after a pause: what was not used is not made up for.
func TestRingRate(t *testing.T) {
	r := newRinged(t)
	const rate = 1_000_000
	r.endlessAt(rate)
	entries := func(d int64) uint64 {
		before := r.e.Counters().RingEntries
		r.runFor(d)
		return r.e.Counters().RingEntries - before
	}
	if n := entries(100_000); n < 95 || n > 105 {
		t.Errorf("%d entries in 100 µs at %d a second", n, rate)
	}
	r.now += 1_000_000 // nothing looks at the ring for a millisecond
	if n := entries(10_000); n > 10+2*ringBudget {
		t.Errorf("%d entries in 10 µs after a pause", n)
	}
}
