package treeload

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/HdrHistogram/hdrhistogram-go"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/topo/simrack"
)

// LockLoad is Sherman's lock micro-benchmark: each client takes a lock by CAS of its word, again and again until it has it,
// and releases it by a WRITE of zero, without touching anything that the lock might protect.
type LockLoad struct {
	Clients int
	// Locks are as many words; 0: 1. Zipf is the skew with which clients choose among them.
	Locks int
	Zipf  float64
	// Device puts the words into the memory of the server's NIC.
	Device bool
	// Mode is that of the rule under which the switch replaces the CAS, hard or paper; "": it forwards them.
	Mode string
	// Misses says who answers CAS that fail, as in a rule of mode hard; "": the server.
	Misses string
	// Bits makes words 0 or 1, and the release a CAS, as the SwordBox paper's clients have it.
	Bits bool
	// Seed of the rack.
	Seed uint64
}

// LockResult is what came out.
type LockResult struct {
	// Attempts are CAS that were answered, Acquired those that took the lock, a second.
	Attempts, Acquired float64
	// P50 and P99 are of the time from the first attempt to the answer of the one that took the lock. A client that waits
	// in vain when the time is over counts with the time so far.
	P50, P99 time.Duration
	// Replaced is the share of CAS that the server saw as something else.
	Replaced float64
}

const (
	// lockWarmUp is virtual time that is not counted, lockTime what is.
	lockWarmUp = 100 * time.Microsecond
	lockTime   = 2 * time.Millisecond
	// lockSetUp is when every connection has been made, those of the switch included.
	lockSetUp = clock.Time(200 * time.Millisecond)
	// lockHosts is how many machines the clients share.
	lockHosts    = 8
	lockPatience = time.Second

	lockService   = "locks"
	switchService = "memory"
)

// lockRun is an experiment in progress.
type lockRun struct {
	LockLoad
	rack *simrack.Rack
	zipf *kv.Zipf

	attempts, acquired int
	freed              int // by CAS
	waits              *hdrhistogram.Histogram
	counting           bool
	stop               clock.Time
}

// Measure runs the experiment with model m.
func (l LockLoad) Measure(m *cost.Model) (LockResult, error) {
	l.Locks = max(l.Locks, 1)
	s, err := simrack.PassiveRack("locks", lockHosts, l.Mode, switchService, l.Misses)
	if err != nil {
		return LockResult{}, err
	}
	r := &lockRun{LockLoad: l, zipf: kv.NewZipf(uint64(l.Locks), l.Zipf), waits: hdrhistogram.New(1, int64(lockPatience), 3)}
	r.stop = lockSetUp.Add(lockWarmUp + lockTime)
	if r.rack, err = simrack.New(s, simrack.Options{Seed: l.Seed, Cost: m, Datagrams: true}); err != nil {
		return LockResult{}, err
	}
	defer r.rack.Close()
	srv := r.rack.Host("ms0")
	lent := simrack.Passive{Bytes: 8 * l.Locks, Device: l.Device, Service: lockService}
	if l.Mode != "" {
		lent.Switch = switchService
	}
	srv.Go(lockService, true, func(ctx verbs.Context) { r.rack.Stop(srv.Lend(ctx, lent)) })
	for i := range l.Clients {
		h := r.rack.Host(fmt.Sprintf("cn%d", i%lockHosts))
		h.Go(fmt.Sprintf("client%d", i), false, func(ctx verbs.Context) { r.rack.Stop(r.client(h, ctx, uint64(i+1))) })
	}
	var atomics uint64
	r.rack.At(lockSetUp.Add(lockWarmUp), func() { r.counting, atomics = true, srv.Counters().RxAtomicRequests })
	r.rack.At(r.stop, func() { r.counting, atomics = false, srv.Counters().RxAtomicRequests-atomics })
	if err := r.rack.Run(); err != nil {
		return LockResult{}, err
	}
	out := LockResult{
		Attempts: float64(r.attempts) / lockTime.Seconds(), Acquired: float64(r.acquired) / lockTime.Seconds(),
		P50: time.Duration(r.waits.ValueAtPercentile(50)), P99: time.Duration(r.waits.ValueAtPercentile(99)),
	}
	if n := r.attempts + r.freed; n > 0 {
		out.Replaced = max(0, 1-float64(atomics)/float64(n))
	}
	return out, nil
}

// lockClient is one client at work.
type lockClient struct {
	*lockRun
	rt             verbs.Runtime
	cq             verbs.CQ
	qp             verbs.QP
	prior          []byte
	take, free     verbs.SendWR
	base, tag, seq uint64
	rand           *rand.Rand
}

// client takes and releases locks as fast as it is answered.
func (r *lockRun) client(h *simrack.Host, ctx verbs.Context, id uint64) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	c := &lockClient{lockRun: r, rt: ctx.Runtime(), tag: id << 32, rand: rand.New(rand.NewPCG(r.Seed, id))}
	if c.cq, err = ctx.CreateCQ(4); err != nil {
		return err
	}
	buf := make([]byte, 16)
	mr, err := pd.RegMR(buf, len(buf), verbs.LocalWrite)
	if err != nil {
		return err
	}
	if c.qp, err = pd.CreateQP(verbs.QPInit{SendCQ: c.cq, RecvCQ: c.cq}); err != nil {
		return err
	}
	private, err := h.Manager(ctx).Dial(c.qp, r.rack.Host("ms0").Addr(), lockService, rdmacm.Params{}, nil, c.rt.Now().Add(lockPatience))
	if err != nil {
		return err
	}
	var rkey uint32
	if c.base, rkey, err = simrack.ParseMemory(private); err != nil {
		return err
	}
	c.prior = buf[:8]
	c.take = verbs.SendWR{Op: verbs.OpCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(0, 8)}, RKey: rkey}
	c.free = verbs.SendWR{Op: verbs.OpWrite, Flags: verbs.Signalled, SGL: []verbs.SGE{mr.SGE(8, 8)}, RKey: rkey}
	if r.Bits {
		c.free.Op, c.free.CompareAdd = verbs.OpCmpSwap, 1
	}
	c.rt.Sleep(lockSetUp.Sub(c.rt.Now()))
	for c.rt.Now() < r.stop {
		if err := c.once(); err != nil {
			return err
		}
	}
	return nil
}

// once takes a lock and releases it. When the time is over, it gives up.
func (c *lockClient) once() error {
	at := c.base + 8*c.zipf.Next(c.rand)
	c.take.RemoteAddr, c.free.RemoteAddr = at, at
	began := c.rt.Now()
	for {
		c.seq++
		if c.take.Swap = c.tag | c.seq; c.Bits {
			c.take.Swap = 1
		}
		if err := c.one(&c.take); err != nil {
			return err
		}
		now := c.rt.Now()
		if c.counting {
			c.attempts++
		}
		if binary.NativeEndian.Uint64(c.prior) == 0 {
			if c.counting {
				c.acquired++
				_ = c.waits.RecordValue(int64(max(1, now.Sub(began)))) // a run is shorter than the histogram
				if c.Bits {
					c.freed++
				}
			}
			return c.one(&c.free)
		}
		if now >= c.stop {
			_ = c.waits.RecordValue(int64(c.stop.Sub(began)))
			return nil
		}
	}
}

// one posts a work request and waits until it is complete.
func (c *lockClient) one(wr *verbs.SendWR) error {
	deadline := c.rt.Now().Add(lockPatience)
	if err := c.qp.PostSend(*wr); err != nil {
		return err
	}
	var wc [1]verbs.WC
	for {
		n, err := c.cq.Poll(wc[:])
		if n == 0 && err == nil {
			err = c.cq.Wait(deadline)
		}
		switch {
		case err != nil:
			return fmt.Errorf("%v: %w", wr.Op, err)
		case n == 0:
			continue
		case wc[0].Status != verbs.Success:
			return fmt.Errorf("%v failed: %v", wr.Op, wc[0].Status)
		}
		return nil
	}
}
