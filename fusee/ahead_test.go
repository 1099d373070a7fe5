package fusee_test

import (
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// taking opens a client of cn0 whose requests for blocks call hook.
func (g *rig) taking(hook func(n int, next func() ([]byte, error)) ([]byte, error), f func(c *fusee.Client, rt verbs.Runtime) error) {
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		cfg, rt, n := g.config(h, ctx), ctx.Runtime(), 0
		cfg.Manager = dialing{cfg.Manager, func(private []byte, next func() ([]byte, error)) ([]byte, error) {
			if len(private) < 2 || private[1] != takeRequest {
				return next()
			}
			n++
			return hook(n, next)
		}}
		c, err := fusee.Open(cfg, soon(rt))
		if err == nil {
			err = errors.Join(f(c, rt), c.Close())
		}
		if err != nil {
			g.t.Error(err)
		}
	})
}

// noOwners fails if a client owns a block, as seen by another client.
func (g *rig) noOwners(blocks int) {
	g.t.Helper()
	g.client("cn1", func(c *fusee.Client, rt verbs.Runtime) error {
		out, err := c.Audit(soon(rt))
		if taken := sum(out.Taken); err != nil || len(out.Owners) > 0 || len(out.Defects) > 0 || taken > blocks {
			return fmt.Errorf("%d blocks are taken, want at most %d and no owner: %+v, %w", taken, blocks, out, err)
		}
		return nil
	})
	g.run()
}

func sum(list []int) (n int) {
	for _, v := range list {
		n += v
	}
	return n
}

// A client requests its next block before it needs it: after its first operation, no INSERT waits for
// the answer of a memory server. Without that, the INSERTs that need a block take several times as long
// as others.
func TestABlockIsRequestedAhead(t *testing.T) {
	for _, ahead := range []int{0, -1} {
		g := newRig(t, 2, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 40, Replicas: 2, Block: 16 << 10})
		g.ahead = ahead
		var took []time.Duration
		g.client("cn0", func(c *fusee.Client, rt verbs.Runtime) error {
			for key := range uint64(400) { // 7 blocks
				from := rt.Now()
				if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
					return err
				}
				took = append(took, rt.Now().Sub(from))
			}
			return nil
		})
		g.run()
		g.noOwners(8)
		shortest, longest := slices.Min(took[1:]), slices.Max(took[1:])
		if waits := longest > 4*shortest; waits != (ahead < 0) {
			t.Errorf("Ahead %d: INSERTs take %v to %v", ahead, shortest, longest)
		}
		t.Logf("Ahead %d: INSERTs take %v to %v, the first one %v", ahead, shortest, longest, took[0])
	}
}

// A request ahead that fails, whose answer is lost, or that is slow, is repeated when the client
// needs the block, takes no second block, and fails no operation.
func TestARequestAheadThatFails(t *testing.T) {
	lost := errors.New("the answer is lost")
	for name, hook := range map[string]func(next func() ([]byte, error), rt verbs.Runtime) ([]byte, error){
		"the answer is lost":  func(next func() ([]byte, error), _ verbs.Runtime) ([]byte, error) { _, _ = next(); return nil, lost },
		"the request is lost": func(func() ([]byte, error), verbs.Runtime) ([]byte, error) { return nil, lost },
		"the answer is late": func(next func() ([]byte, error), rt verbs.Runtime) ([]byte, error) {
			rt.Sleep(time.Millisecond)
			return next()
		},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, simrack.Options{})
			g.format(fusee.FormatConfig{Groups: 40, Replicas: 1, Block: 16 << 10})
			failed := 0
			var rt verbs.Runtime
			g.taking(func(n int, next func() ([]byte, error)) ([]byte, error) {
				if n%2 == 0 { // the first request of the client is not made ahead, and each repetition succeeds
					failed++
					return hook(next, rt)
				}
				return next()
			}, func(c *fusee.Client, clock verbs.Runtime) error {
				rt = clock
				for key := range uint64(400) {
					if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
						return fmt.Errorf("INSERT %d: %w", key, err)
					}
				}
				return nil
			})
			g.run()
			if failed == 0 {
				t.Error("no request was made ahead")
			}
			g.noOwners(8)
		})
	}
}

// A client leaves a block that it has requested ahead and not used, when it ends and when the request ends
// after the client's last operation.
func TestABlockRequestedAheadIsLeft(t *testing.T) {
	for _, delay := range []time.Duration{0, 10 * time.Millisecond, 300 * time.Millisecond} {
		g := newRig(t, 1, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 40, Block: 16 << 10})
		requests := 0
		var rt verbs.Runtime
		g.taking(func(n int, next func() ([]byte, error)) ([]byte, error) {
			if requests = n; n == 2 {
				rt.Sleep(delay)
			}
			return next()
		}, func(c *fusee.Client, clock verbs.Runtime) error {
			rt = clock
			for key := range uint64(40) {
				if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
					return err
				}
			}
			return nil
		})
		g.run()
		if requests != 2 {
			t.Errorf("%d requests, want 2", requests)
		}
		g.noOwners(2)
	}
}

// A client that was taken for dead while it requests a block ahead goes on with another number. The
// block, if its former number has got one, is left by who has recovered it.
func TestAClientIsFencedWhileItRequestsAhead(t *testing.T) {
	for _, before := range []bool{true, false} {
		g := newRig(t, 1, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 40, Block: 16 << 10})
		stage := 0
		var number uint32
		var rt verbs.Runtime
		g.taking(func(n int, next func() ([]byte, error)) (b []byte, err error) {
			if n != 2 {
				return next()
			}
			if before {
				b, err = next()
			}
			for stage = 1; stage < 2; {
				rt.Sleep(time.Microsecond)
			}
			if !before {
				b, err = next()
			}
			return b, err
		}, func(c *fusee.Client, clock verbs.Runtime) error {
			rt, number = clock, c.Number()
			for key := uint64(0); key < 150; key++ {
				if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
					return fmt.Errorf("INSERT %d: %w", key, err)
				}
				for key == 40 && stage < 2 {
					rt.Sleep(time.Microsecond)
				}
			}
			if c.Number() == number {
				return fmt.Errorf("the client has still the number %d", number)
			}
			return nil
		})
		g.client("cn2", func(c *fusee.Client, rt verbs.Runtime) error {
			for stage < 1 {
				rt.Sleep(time.Microsecond)
			}
			err := c.Recover(number, soon(rt))
			stage = 2
			return err
		})
		g.run()
		g.noOwners(6)
	}
}
