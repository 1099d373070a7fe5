package simrack

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	restarted "github.com/rdmalab/rdmalab/swordbox/staleflows"
)

// The switch of a rack dies and restarts, again and again, while clients have many requests in
// flight. A request that has completed for the client must have been executed: the fatal NAK of a
// restarted switch does not acknowledge a request that was lost.

const (
	restartClients = 3
	restartOps     = 120 // operations of each client, of each kind
	restartDepth   = 8
	restartService = "memory"
	addAt          = 0  // offset of the word to which clients add
	slotsAt        = 64 // offset of the slots that clients write, one for each WRITE
	restartRegion  = slotsAt + 8*restartClients*restartOps
)

// restartRun is one run.
type restartRun struct {
	t       *testing.T
	r       *Rack
	mr      verbs.MR
	written []uint64 // offsets of slots whose WRITE has succeeded
	added   map[uint64]bool
	asked   int // additions that were posted
	errors  map[verbs.Status]int
	retries int      // connections after the first of each client
	failed  []string // errors that clients found
	stuck   error
}

// serve accepts all connections, including those of the switch, in the protection domain of the
// region.
func (x *restartRun) serve(ctx verbs.Context) {
	t, rt := x.t, ctx.Runtime()
	pd, err := ctx.AllocPD()
	if err != nil {
		t.Error(err)
		return
	}
	x.mr, err = pd.RegMR(nil, restartRegion, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	if err != nil {
		t.Error(err)
		return
	}
	l, err := x.r.Host("ms0").ConnManager(ctx).Listen(restartService)
	if err != nil {
		t.Error(err)
		return
	}
	private := binary.BigEndian.AppendUint64(nil, x.mr.Addr())
	private = binary.BigEndian.AppendUint32(private, x.mr.RKey())
	for {
		req, err := l.Accept(clock.Never)
		if err != nil {
			return
		}
		rt.Go("accept", func() {
			cq, err := ctx.CreateCQ(4)
			if err != nil {
				t.Error(err)
				return
			}
			qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
			if err != nil {
				t.Error(err)
				return
			}
			_ = req.Accept(qp, rdmacm.Params{}, private, rt.Now().Add(time.Minute)) // a client that gives up connects again
		})
	}
}

// client works until all its operations are executed, on as many connections as needed.
func (x *restartRun) client(ctx verbs.Context, h *Host, id int) error {
	rt := ctx.Runtime()
	next := 0
	for try := 0; next < 2*restartOps; try++ {
		if try > 100 {
			return fmt.Errorf("client %d: %d of %d operations after %d connections", id, next, 2*restartOps, try)
		}
		if try > 0 {
			x.retries++
		}
		pd, err := ctx.AllocPD()
		if err != nil {
			return err
		}
		cq, err := ctx.CreateCQ(2 * restartDepth)
		if err != nil {
			return err
		}
		buf := make([]byte, 8*restartDepth)
		local, err := pd.RegMR(buf, 0, verbs.LocalWrite)
		if err != nil {
			return err
		}
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: restartDepth, MaxRecvWR: 1, MaxInline: 16})
		if err != nil {
			return err
		}
		private, err := h.ConnManager(ctx).Dial(qp, x.r.Host("ms0").Addr(), restartService, rdmacm.Params{Timeout: 10, RetryCount: 7}, nil, rt.Now().Add(5*time.Second))
		if err == nil {
			addr, key := binary.BigEndian.Uint64(private), binary.BigEndian.Uint32(private[8:])
			next, err = x.work(rt, qp, cq, local, buf, id, next, addr, key)
		}
		var status *statusError
		if err != nil && !errors.As(err, &status) && !errors.Is(err, verbs.ErrTimeout) && !errors.Is(err, rdmacm.ErrRejected) && !errors.Is(err, verbs.ErrUnreachable) {
			return fmt.Errorf("client %d: %w", id, err)
		}
		if err := errors.Join(qp.Destroy(), local.Dereg(), cq.Destroy(), pd.Dealloc()); err != nil {
			return err
		}
	}
	return nil
}

// statusError is the error for a completion that has failed.
type statusError struct{ status verbs.Status }

func (e *statusError) Error() string { return e.status.String() }

// work posts WRITEs and additions in turn, and returns how many have succeeded in all.
func (x *restartRun) work(rt verbs.Runtime, qp verbs.QP, cq verbs.CQ, local verbs.MR, buf []byte, id, next int, addr uint64, key uint32) (int, error) {
	posted := next
	var wcs [restartDepth]verbs.WC
	for next < 2*restartOps {
		for ; posted < 2*restartOps && posted-next < restartDepth; posted++ {
			wr := verbs.SendWR{ID: uint64(posted), Flags: verbs.Signalled, RKey: key}
			if posted%2 == 0 {
				slot := uint64(slotsAt + 8*(id*restartOps+posted/2))
				wr.Op, wr.Flags, wr.RemoteAddr = verbs.OpWrite, verbs.Signalled|verbs.Inline, addr+slot
				wr.Data = binary.NativeEndian.AppendUint64(nil, slot)
			} else {
				wr.Op, wr.CompareAdd, wr.RemoteAddr = verbs.OpFetchAdd, 1, addr+addAt
				wr.SGL = []verbs.SGE{local.SGE(posted%restartDepth*8, 8)}
				x.asked++
			}
			if err := qp.PostSend(wr); err != nil {
				return next, err
			}
		}
		if err := cq.Wait(rt.Now().Add(time.Minute)); err != nil {
			return next, err
		}
		n, err := cq.Poll(wcs[:])
		if err != nil {
			return next, err
		}
		for _, wc := range wcs[:n] {
			if wc.Status != verbs.Success {
				x.errors[wc.Status]++
				return next, &statusError{wc.Status}
			}
			if int(wc.ID) != next {
				return next, fmt.Errorf("completion of %d, want %d", wc.ID, next)
			}
			if next%2 == 0 {
				x.written = append(x.written, uint64(slotsAt+8*(id*restartOps+next/2)))
			} else if old := binary.NativeEndian.Uint64(buf[next%restartDepth*8:]); x.added[old] {
				return next, fmt.Errorf("two adds replaced the value %d", old)
			} else {
				x.added[old] = true
			}
			next++
		}
		if rt.Rand().IntN(4) == 0 {
			rt.Sleep(time.Duration(rt.Rand().IntN(int(200 * time.Microsecond))))
		}
	}
	return next, nil
}

// check compares the server's memory with the operations that completed for the clients.
func (x *restartRun) check() {
	for _, w := range x.wrong() {
		x.t.Error(w)
	}
}

// wrong lists requests that completed and were not executed.
func (x *restartRun) wrong() (list []string) {
	list = append(list, x.failed...)
	if x.stuck != nil {
		list = append(list, x.stuck.Error())
	}
	for _, off := range x.written {
		if got, err := x.mr.Load64(int(off)); err != nil || got != off {
			list = append(list, fmt.Sprintf("a WRITE was acknowledged, but memory at %d has %#x, %v", off, got, err))
		}
	}
	sum, err := x.mr.Load64(addAt)
	if err != nil || sum < uint64(len(x.added)) || sum > uint64(x.asked) {
		list = append(list, fmt.Sprintf("%d adds were acknowledged, %d asked for, and memory has %d, %v", len(x.added), x.asked, sum, err))
	}
	for old := range x.added {
		if old >= sum {
			list = append(list, fmt.Sprintf("an add replaced %d, but memory has %d", old, sum))
		}
	}
	return list
}

// restart runs clients while the switch dies now and then. rule is the switch's rule without its
// server. The links lose, duplicate and reorder packets with the probability trouble.
func restart(t *testing.T, rule string, seed uint64, trouble float64) *restartRun {
	yaml := fmt.Sprintf(`
name: restart
switch:
  program: swordbox
  rules: [{server: ms0, %s}]
hosts:
  - {name: "cn[0-2]", role: compute}
  - {name: ms0, role: memory}
`, rule)
	x := &restartRun{t: t, added: make(map[uint64]bool), errors: make(map[verbs.Status]int)}
	x.r = newRack(t, yaml, Options{Seed: seed, Datagrams: true})
	rnd := rand.New(rand.NewPCG(seed, 99))
	for _, h := range x.r.Hosts() {
		if name := h.Spec.Name; trouble > 0 {
			h.SetFaults([]fault.Rule{
				{Link: name, Kind: fault.Loss, Probability: trouble},
				{Link: name, Kind: fault.Duplicate, Probability: trouble},
				{Link: name, Kind: fault.Reorder, Probability: trouble, Delay: 100 * time.Microsecond},
			})
		}
	}
	x.r.Host("ms0").Go("server", true, x.serve)
	for i := range restartClients {
		h := x.r.Host(fmt.Sprintf("cn%d", i))
		h.Go("client", false, func(ctx verbs.Context) {
			ctx.Runtime().Sleep(5 * time.Millisecond)
			if err := x.client(ctx, h, i); err != nil {
				x.failed = append(x.failed, err.Error())
			}
		})
	}
	at := clock.Time(5 * time.Millisecond)
	for range 8 {
		at = at.Add(time.Duration(rnd.IntN(int(2 * time.Millisecond))))
		down := time.Duration(rnd.IntN(int(3 * time.Millisecond)))
		x.r.At(at, x.r.CrashSwitch)
		x.r.At(at.Add(down), func() {
			if err := x.r.RestartSwitch(); err != nil {
				t.Error(err)
			}
		})
		at = at.Add(down + 8*time.Millisecond)
	}
	if err := x.r.Run(); err != nil {
		x.stuck = err
	}
	return x
}

func TestSwitchRestartLosesNothing(t *testing.T) {
	seeds := 24
	if testing.Short() {
		seeds = 6
	}
	sum := make(map[verbs.Status]int)
	for _, rule := range []string{"action: atomics, shards: 2", "action: move, shards: 2"} {
		for seed := 1; seed <= seeds; seed++ {
			x := restart(t, rule, uint64(seed), 0.01)
			x.check()
			for s, n := range x.errors {
				sum[s] += n
			}
			if t.Failed() {
				t.Fatalf("%s, seed %d", rule, seed)
			}
		}
	}
	// Most connections are ended by the NAK, long before the client's retries are exhausted.
	if naks, silent := sum[verbs.RemOpErr], sum[verbs.RetryExcErr]; naks < seeds || silent > naks/4 {
		t.Errorf("%d connections ended by a NAK, %d by silence", naks, silent)
	}
	t.Logf("%v", sum)
}

// A WRITE that replaces a client's CMP_SWAP is in flight to the server when the switch dies, for
// longer than the switch takes to restart, and the restarted switch's first datagram to the server,
// which ends its old connection, is lost. Until the server has ended that connection, no other
// client may get the lock, because the WRITE would take it away from that client.
func TestLateRequestOfAFormerIncarnation(t *testing.T) {
	r := newRack(t, boxed, Options{Datagrams: true})
	x := &restartRun{t: t, r: r}
	ms := r.Host("ms0")
	ms.Go("server", true, x.serve)
	const crashAt = 50 * time.Millisecond
	lock := func(ctx verbs.Context, h *Host, do func(cas func(old, new uint64) (uint64, error)) error) {
		pd, err := ctx.AllocPD()
		if err != nil {
			t.Error(err)
			return
		}
		ctx.Runtime().Sleep(5 * time.Millisecond)
		cq, _ := ctx.CreateCQ(4)
		buf := make([]byte, 8)
		local, _ := pd.RegMR(buf, 0, verbs.LocalWrite)
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			t.Error(err)
			return
		}
		private, err := h.ConnManager(ctx).Dial(qp, ms.Addr(), restartService, rdmacm.Params{Timeout: 12}, nil, clock.Never)
		if err != nil {
			t.Error(err)
			return
		}
		addr, key := binary.BigEndian.Uint64(private), binary.BigEndian.Uint32(private[8:])
		err = do(func(old, swap uint64) (uint64, error) {
			wr := verbs.SendWR{
				Op: verbs.OpCmpSwap, Flags: verbs.Signalled, RKey: key, RemoteAddr: addr, CompareAdd: old, Swap: swap, SGL: []verbs.SGE{local.SGE(0, 8)},
			}
			if err := errors.Join(qp.PostSend(wr), cq.Wait(clock.Never)); err != nil {
				return 0, err
			}
			var wc [1]verbs.WC
			if _, err := cq.Poll(wc[:]); err != nil || wc[0].Status != verbs.Success {
				return 0, errors.Join(err, &statusError{wc[0].Status})
			}
			return binary.NativeEndian.Uint64(buf), nil
		})
		if err != nil {
			t.Error(err)
		}
	}
	r.Host("cn0").Go("first", false, func(ctx verbs.Context) {
		lock(ctx, r.Host("cn0"), func(cas func(old, swap uint64) (uint64, error)) error {
			for i := range uint64(4) {
				if old, err := cas(i%2, 1-i%2); err != nil || old != i%2 {
					return fmt.Errorf("round %d: %d, %w", i, old, err)
				}
			}
			ctx.Runtime().Sleep(time.Duration(clock.Time(crashAt) - ctx.Runtime().Now()))
			var status *statusError
			if _, err := cas(0, 1); !errors.As(err, &status) || status.status != verbs.RemOpErr {
				return fmt.Errorf("the client whose switch has died gets %w", err)
			}
			return nil
		})
	})
	won := false
	r.Host("cn1").Go("second", false, func(ctx verbs.Context) {
		lock(ctx, r.Host("cn1"), func(cas func(old, swap uint64) (uint64, error)) error {
			ctx.Runtime().Sleep(time.Duration(clock.Time(crashAt).Add(400*time.Microsecond) - ctx.Runtime().Now()))
			old, err := cas(0, 2)
			won = old == 0
			return err
		})
	})
	r.At(clock.Time(crashAt)-1, func() {
		ms.SetFaults([]fault.Rule{{Link: "ms0", Kind: fault.Delay, Delay: 5 * time.Millisecond, Dir: fault.Down, Match: fault.Match{Opcodes: []wire.Opcode{wire.RCWriteOnly}}}})
	})
	r.At(clock.Time(crashAt).Add(100*time.Microsecond), func() {
		r.CrashSwitch()
		ms.SetFaults([]fault.Rule{{Link: "ms0", Kind: fault.Loss, Count: 2, Dir: fault.Down, Match: fault.Match{Opcodes: []wire.Opcode{wire.UDSendOnly}}}})
	})
	r.At(clock.Time(crashAt).Add(200*time.Microsecond), func() {
		if err := r.RestartSwitch(); err != nil {
			t.Error(err)
		}
	})
	if err := errors.Join(r.Run(), r.Settle(time.Second)); err != nil {
		t.Fatal(err)
	}
	got, err := x.mr.Load64(addAt)
	if err != nil || won && got != 2 {
		t.Errorf("the second client has the lock, and the word is %d, %v", got, err)
	}
	if n := r.Switch().Port(1).Drops[restarted.ReasonBlocked]; n == 0 {
		t.Error("nothing was held off: the story did not happen")
	}
}

// The same in mode published, which keeps no journal, on links that lose nothing. The PSN shifts
// are lost while both ends go on counting. The server therefore takes new requests of the client
// whose connection was borrowed for duplicates, and acknowledges them without executing them. No
// client gets an error for these; connections end by timeouts.
func TestPaperRestartLosesWrites(t *testing.T) {
	wrong := 0
	sum := make(map[verbs.Status]int)
	for seed := uint64(1); seed <= 20; seed++ {
		x := restart(t, "action: move, mode: published", seed, 0)
		for s, n := range x.errors {
			sum[s] += n
		}
		if w := x.wrong(); len(w) > 0 {
			wrong++
			t.Logf("seed %d: %d times, first %s", seed, len(w), w[0])
		}
	}
	if wrong == 0 || sum[verbs.RemOpErr] != 0 || sum[verbs.RetryExcErr] == 0 {
		t.Errorf("damage in %d runs of 20, connections ended by %v", wrong, sum)
	}
}
