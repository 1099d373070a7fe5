package fusee_test

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/fusee"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// takes calls hook for requests for blocks, with their server.
type takes struct {
	rdmacm.Dialer
	hook func(to netip.Addr, deadline clock.Time, next func() ([]byte, error)) ([]byte, error)
}

// Dial implements rdmacm.Dialer.
func (d takes) Dial(qp verbs.QP, to netip.Addr, service string, p rdmacm.Params, private []byte, deadline clock.Time) ([]byte, error) {
	next := func() ([]byte, error) { return d.Dialer.Dial(qp, to, service, p, private, deadline) }
	if len(private) < 2 || private[1] != takeRequest {
		return next()
	}
	return d.hook(to, deadline, next)
}

// errUnanswered: a request has no answer.
var errUnanswered = errors.New("no answer")

// takingFrom opens a client of cn0 whose requests for blocks call hook.
func (g *rig) takingFrom(hook func(to netip.Addr, deadline clock.Time, next func() ([]byte, error)) ([]byte, error), f func(c *fusee.Client, rt verbs.Runtime) error) {
	h := g.Host("cn0")
	h.Go("client", false, func(ctx verbs.Context) {
		cfg, rt := g.config(h, ctx), ctx.Runtime()
		cfg.Manager = takes{cfg.Manager, hook}
		c, err := fusee.Open(cfg, soon(rt))
		if err == nil {
			err = errors.Join(f(c, rt), c.Close())
		}
		if err != nil {
			g.t.Error(err)
		}
	})
}

// A server crashes while it gets a request for a block ahead. The client requests its later blocks ahead of
// other servers: when the members have changed, no INSERT waits for an answer.
func TestBlocksAreRequestedAheadAfterACrash(t *testing.T) {
	for victim := range 3 {
		g := newRig(t, 3, simrack.Options{})
		g.format(fusee.FormatConfig{Groups: 80, Replicas: 2, IndexReplicas: 3, Block: 16 << 10})
		ready, armed := false, false
		g.master("cn3", &ready)
		var took []time.Duration
		g.takingFrom(func(to netip.Addr, _ clock.Time, next func() ([]byte, error)) ([]byte, error) {
			if armed && to == g.servers[victim] {
				armed = false
				g.Host(fmt.Sprintf("ms%d", victim)).Crash()
			}
			return next()
		}, func(c *fusee.Client, rt verbs.Runtime) error {
			for !ready {
				rt.Sleep(time.Millisecond)
			}
			armed = true
			for key := uint64(0); key < 1000 && len(took) < 400; key++ {
				from, crashed := rt.Now(), !armed
				if err := c.Insert(key, kv.MakeValue(key, 1, 100), soon(rt)); err != nil {
					return err
				}
				if crashed {
					took = append(took, rt.Now().Sub(from))
				}
				rt.Sleep(time.Millisecond) // so that the answer comes meanwhile
			}
			return nil
		})
		g.run()
		if armed {
			t.Fatalf("ms%d was not asked for a block", victim)
		}
		took = took[100:] // the members have changed, and the client has had a block of its own since then
		if shortest, longest := slices.Min(took), slices.Max(took); longest > 4*shortest {
			t.Errorf("ms%d: INSERTs take %v to %v", victim, shortest, longest)
		}
	}
}

// The answer to a request for a block does not come before the deadline of the operation. The client
// closes when the service answers again: it leaves the block that it has got.
func TestCloseAfterARequestWithoutAnswer(t *testing.T) {
	for _, ahead := range []int{-1, 0} {
		for _, first := range []int{1, 2} {
			t.Run(fmt.Sprintf("%d/%d", ahead, first), func(t *testing.T) {
				g := newRig(t, 1, simrack.Options{})
				g.format(fusee.FormatConfig{Groups: 40, Block: 16 << 10})
				g.ahead = ahead
				asked, lost := 0, 0
				silent := true
				var rt verbs.Runtime
				g.takingFrom(func(_ netip.Addr, deadline clock.Time, next func() ([]byte, error)) ([]byte, error) {
					b, err := next()
					if asked++; asked >= first && silent {
						lost++
						rt.Sleep(deadline.Sub(rt.Now()))
						return nil, errUnanswered
					}
					return b, err
				}, func(c *fusee.Client, clock verbs.Runtime) error {
					rt = clock
					for key := range uint64(150) {
						err := c.Insert(key, kv.MakeValue(key, 1, 100), rt.Now().Add(100*time.Millisecond))
						if errors.Is(err, kv.ErrTimeout) {
							break
						}
						if err != nil {
							return err
						}
					}
					rt.Sleep(2 * time.Second)
					silent = false
					return nil
				})
				g.run()
				if lost == 0 {
					t.Error("each request had an answer")
				}
				g.noOwners(100)
			})
		}
	}
}

// The service of a server answers no requests for blocks any more, and its NIC goes on. The other
// server has blocks: no INSERT fails.
func TestAServiceThatGivesOutNoBlocks(t *testing.T) {
	for _, ahead := range []int{-1, 0} {
		t.Run(fmt.Sprint(ahead), func(t *testing.T) {
			g := newRigOf(t, 2, 8<<20, simrack.Options{})
			g.format(fusee.FormatConfig{Groups: 300, Replicas: 1, Block: 16 << 10})
			g.ahead = ahead
			var rt verbs.Runtime
			asked, failed := 0, 0
			g.takingFrom(func(to netip.Addr, deadline clock.Time, next func() ([]byte, error)) ([]byte, error) {
				if to == g.servers[1] {
					if asked++; asked > 1 {
						rt.Sleep(deadline.Sub(rt.Now()))
						return nil, errUnanswered
					}
				}
				return next()
			}, func(c *fusee.Client, clock verbs.Runtime) error {
				rt = clock
				for key := range uint64(600) {
					if err := c.Insert(key, kv.MakeValue(key, 1, 100), rt.Now().Add(3*time.Second)); err != nil {
						failed++
					}
				}
				return nil
			})
			g.run()
			if asked < 2 {
				t.Errorf("%d requests", asked)
			}
			if failed > 0 {
				t.Errorf("%d of 600 INSERTs have failed", failed)
			}
		})
	}
}
