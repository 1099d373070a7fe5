package clover_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// deposed is a store whose metadata server on md0 hangs while one on cn2 takes over.
type deposed struct{ *copyStory }

// newDeposed starts a store with one metadata server.
func newDeposed(t *testing.T, replicas int, opt simrack.Options) *deposed {
	cfg := meta.Config{Format: layout.Hardened, Keys: 64, Replicas: replicas, Lease: 200 * time.Millisecond, Grace: 200 * time.Millisecond}
	return &deposed{&copyStory{newRigOf(t, threeServers, opt, cfg, region), map[uint64][]byte{}}}
}

// first starts the metadata server on md0 again, as one that may be deposed.
func (y *deposed) first(rt verbs.Runtime, threads int) {
	y.restartMD(rt)
	begun := false
	y.cfg.Threads = threads
	y.beginMeta("md0", asItIs, func(_ *meta.Server, err error) {
		if begun = true; err != nil {
			y.t.Error(err)
		}
	}, func() {})
	await(rt, &begun)
}

// takeOver starts a metadata server on cn2. When it serves, a client of it writes all keys.
func (y *deposed) takeOver(rt verbs.Runtime, n int) {
	serves, written := false, false
	y.beginMeta("cn2", asItIs, func(_ *meta.Server, err error) {
		if serves = true; err != nil {
			y.t.Error(err)
		}
	}, func() {})
	await(rt, &serves)
	y.with("cn1", "cn2", func(c *clover.Client, rt verbs.Runtime) error { return y.write(c, rt, n) }, &written)
	await(rt, &written)
}

// with runs a client on a host that asks the metadata server on another one, and then sets done.
func (y *deposed) with(host, md string, f func(c *clover.Client, rt verbs.Runtime) error, done *bool) {
	h := y.Host(host)
	h.Go("client", false, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: y.Host(md).Addr()}, soon(rt))
		if err == nil {
			err = errors.Join(f(c, rt), c.Close())
		}
		if *done = true; err != nil {
			y.t.Errorf("client on %s: %v", host, err)
		}
	})
}

// A metadata server hangs while another one takes over and keys are inserted. When it resumes, a new
// client asks it first. It does not say that there are no such keys, as its tables do.
func TestADeposedServerAnswersNothingFromItsTables(t *testing.T) {
	for replicas := 1; replicas <= 3; replicas++ {
		for _, threads := range []int{0, 2} {
			y := newDeposed(t, replicas, simrack.Options{})
			md0, asked := y.Host("md0"), 0
			y.Host("cn0").Go("story", false, func(ctx verbs.Context) {
				rt := ctx.Runtime()
				y.first(rt, threads)
				md0.HangAll()
				y.takeOver(rt, 1)
				md0.ResumeAll()
				h := y.Host("cn0")
				until := rt.Now().Add(500 * time.Millisecond)
				c, err := clover.Open(clover.Config{Context: ctx, Manager: h.Manager(ctx), Meta: md0.Addr()}, until)
				for ; err == nil && rt.Now() < until; asked++ {
					v, err := c.Get(7, nil, until)
					if errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrLost) || err == nil && !bytes.Equal(v, y.want[7]) {
						t.Errorf("%d copies, %d threads: GET %d of an acknowledged key: %.10q, %v", replicas, threads, asked, v, err)
						return
					}
				}
			})
			y.run()
		}
	}
}

// A metadata server hangs, and all memory servers lose their memory. Another metadata server makes a new
// store there. It finds no number of its predecessor, so its own may be smaller. When the first one
// resumes, it does not format the new store.
func TestADeposedServerFormatsNoOtherStore(t *testing.T) {
	for seed := range uint64(8) {
		replicas := 1 + int(seed)%3
		y := newDeposed(t, replicas, simrack.Options{Seed: seed})
		md0 := y.Host("md0")
		y.Host("cn0").Go("story", false, func(ctx verbs.Context) {
			rt, written := ctx.Runtime(), false
			y.first(rt, 0)
			y.with("cn1", "md0", func(c *clover.Client, rt verbs.Runtime) error { return y.write(c, rt, 1) }, &written)
			await(rt, &written)
			md0.HangAll()
			for _, n := range []string{"ms0", "ms1", "ms2"} {
				y.Host(n).Crash()
				y.Host(n).Restart()
				y.memory(n)
			}
			rt.Sleep(10 * time.Millisecond)
			y.takeOver(rt, 2)
			md0.ResumeAll()
			rt.Sleep(3 * time.Second)
			done := false
			y.with("cn1", "cn2", func(c *clover.Client, rt verbs.Runtime) error {
				lost, err := y.read(c, rt)
				if lost > 0 {
					t.Errorf("seed %d, %d copies: %d acknowledged keys lost", seed, replicas, lost)
				}
				return err
			}, &done)
			await(rt, &done)
		})
		if err := y.Run(); err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
	}
}
