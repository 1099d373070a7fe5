package ipc_test

import (
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/ipc"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

var stormTime = flag.Duration("storm", time.Second, "how long the storm of connections lasts")

// storm is programs on one NIC that access the memory of another NIC over a cable that fails again
// and again.
type storm struct {
	h     *house
	gone  atomic.Bool // the cable is cut
	over  atomic.Bool
	words atomic.Uint64 // operations that have succeeded
	fails atomic.Uint64 // connections that failed
	made  atomic.Uint64 // connections that were made
}

// stormParams make connections fail soon: 131 µs, twice.
var stormParams = rdmacm.Params{Timeout: 5, RetryCount: 2, RdAtomic: 4}

// serve is the service with the memory: it accepts all connections, and closes the oldest if there
// are too many.
func (s *storm) serve(ctx *ipc.Context) error {
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(nil, 64, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
	if err != nil {
		return err
	}
	cq, err := ctx.CreateCQ(1024)
	if err != nil {
		return err
	}
	l, err := ctx.Manager().Listen("memory")
	if err != nil {
		return err
	}
	defer l.Close()
	where := binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(nil, mr.Addr()), mr.RKey())
	var qps []verbs.QP
	for !s.over.Load() {
		r, err := l.Accept(ctx.Runtime().Now().Add(10 * time.Millisecond))
		if errors.Is(err, verbs.ErrTimeout) {
			continue
		}
		if err != nil {
			return err
		}
		qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
		if err != nil {
			return err
		}
		qps = append(qps, qp)
		_ = r.Accept(qp, stormParams, where, ctx.Runtime().Now().Add(50*time.Millisecond)) // a peer whose connection was closed connects again
		if len(qps) > 100 {
			if err := qps[0].Destroy(); err != nil {
				return err
			}
			qps = qps[1:]
		}
	}
	return nil
}

// client uses the memory until the test ends.
func (s *storm) client(ctx *ipc.Context, r *rand.Rand, step func(string)) error {
	for !s.over.Load() {
		if err := s.connection(ctx, r, step); err != nil {
			return err
		}
	}
	return nil
}

// connection makes one connection and uses it until it fails, or for some time. It returns errors
// that must not occur.
func (s *storm) connection(ctx *ipc.Context, r *rand.Rand, step func(string)) (err error) {
	step("make objects")
	cq, err := ctx.CreateCQ(16)
	if err != nil {
		return err
	}
	pd, err := ctx.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(nil, 8, verbs.LocalWrite)
	if err != nil {
		return err
	}
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 8, MaxRecvWR: 1, SignalAll: true})
	if err != nil {
		return err
	}
	defer func() {
		step("destroy objects")
		err = errors.Join(err, qp.Destroy(), mr.Dereg(), pd.Dealloc(), cq.Destroy())
	}()
	step("dial")
	where, err := ctx.Manager().Dial(qp, ips[1], "memory", stormParams, nil, ctx.Runtime().Now().Add(time.Duration(r.IntN(100))*time.Millisecond))
	if err != nil || len(where) != 12 {
		s.fails.Add(1)
		return nil // the memory service is not there
	}
	s.made.Add(1)
	for range 1 + r.IntN(200) {
		step("store")
		if err := mr.Store64(0, r.Uint64()); err != nil {
			return err
		}
		if r.IntN(4) == 0 {
			step("arm")
			if err := cq.Arm(false); err != nil {
				return err
			}
		}
		step("post")
		wr := verbs.SendWR{
			Op: verbs.OpFetchAdd, SGL: []verbs.SGE{mr.SGE(0, 8)}, CompareAdd: 1,
			RemoteAddr: binary.BigEndian.Uint64(where), RKey: binary.BigEndian.Uint32(where[8:]),
		}
		if err := qp.PostSend(wr); err != nil {
			return err
		}
		step("wait")
		if err := cq.Wait(clock.Never); err != nil {
			return err
		}
		var wc [4]verbs.WC
		n, err := cq.Poll(wc[:])
		if n != 1 || err != nil || wc[0].QPN != qp.QPN() {
			return fmt.Errorf("%d completions, %+v, %w", n, wc[0], err)
		}
		if wc[0].Status != verbs.Success {
			s.fails.Add(1)
			return nil
		}
		s.words.Add(1)
	}
	return nil
}

// Programs connect, work, fail and connect again, while their peer vanishes again and again. No
// program hangs, and none polls by a timer: each wait is ended by its event.
func TestStormOfConnections(t *testing.T) {
	t.Cleanup(ipc.Again(time.Hour))
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) { weather(t, spin) })
	}
}

func weather(t *testing.T, spin time.Duration) {
	s := &storm{}
	s.h = newHouseOn(t, memcable.Config{Filter: func(int, int, packetio.Frame) int {
		if s.gone.Load() {
			return 0
		}
		return 1
	}}, spin, nil)
	var wg sync.WaitGroup
	server := s.h.open(t, 1)
	wg.Go(func() {
		if err := s.serve(server); err != nil {
			t.Error("server:", err)
		}
	})
	const programs, threads = 4, 2
	type place struct {
		at    atomic.Value
		steps atomic.Uint64
	}
	var places [programs * threads]place
	for i := range places {
		if i%threads == 0 {
			c := s.h.open(t, 0)
			for k := range threads {
				p := &places[i+k]
				wg.Go(func() {
					step := func(what string) {
						p.at.Store(what)
						p.steps.Add(1)
					}
					if err := s.client(c, rand.New(rand.NewPCG(5, uint64(i+k))), step); err != nil {
						t.Error("client:", err)
					}
					step("end")
				})
			}
		}
	}
	r := rand.New(rand.NewPCG(6, 6))
	for end := time.Now().Add(*stormTime); time.Now().Before(end) || (s.fails.Load() == 0 || s.words.Load() == 0) && time.Since(end) < time.Minute; {
		s.gone.Store(!s.gone.Load())
		time.Sleep(time.Duration(r.IntN(20)) * time.Millisecond)
	}
	s.gone.Store(false)
	s.over.Store(true)
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	var before [len(places)]uint64
	for {
		select {
		case <-done:
			t.Logf("%d operations, %d connections, %d failures", s.words.Load(), s.made.Load(), s.fails.Load())
			if s.words.Load() == 0 || s.fails.Load() == 0 {
				t.Error("the storm was none")
			}
			return
		case <-time.After(30 * time.Second):
		}
		for i := range places {
			if n := places[i].steps.Load(); n == before[i] && places[i].at.Load() != "end" {
				b := make([]byte, 1<<20)
				t.Logf("%s", b[:runtime.Stack(b, true)])
				t.Fatalf("thread %d hangs in %q", i, places[i].at.Load())
			} else {
				before[i] = n
			}
		}
	}
}
