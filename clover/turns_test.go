package clover_test

import (
	"bytes"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/meta"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Clients of a process that take turns need fewer appends than PUTs, and the last value is one that
// was written after all answered PUTs had begun.
func TestTurnsSaveAppends(t *testing.T) {
	const key, size, clients, puts = 1, 40, 6, 20
	appends := func(turns *clover.Turns) uint64 {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 16}, region)
		cfg := clover.Config{Cache: clover.NewCache(0), Turns: turns}
		ready, done := 0, 0
		newest := make(map[int]bool) // the last PUT of each client
		for id := range clients {
			g.clientOf("cn0", cfg, func(c *clover.Client, rt verbs.Runtime) error {
				var err error
				if id == 0 {
					err = c.Insert(key, value(key, 0, size), soon(rt))
				}
				for ready++; ready < clients; rt.Sleep(10 * time.Microsecond) {
				}
				for n := range puts {
					err = errors.Join(err, c.Put(key, value(key, id*puts+n+1, size), soon(rt)))
				}
				newest[id*puts+puts] = true
				if done++; done < clients {
					return err
				}
				v, gone := c.Get(key, nil, soon(rt))
				last := false
				for n := range newest {
					last = last || bytes.Equal(v, value(key, n, size))
				}
				if !last {
					err = errors.Join(err, fmt.Errorf("the value after all PUTs is %.20q, not that of a client's last PUT", v))
				}
				return errors.Join(err, gone)
			})
		}
		g.run()
		a, b := g.Host("ms0").Counters(), g.Host("ms1").Counters()
		return a.RxAtomicRequests + b.RxAtomicRequests
	}
	if n := appends(nil); n <= clients*puts {
		t.Errorf("without turns %d PUTs take %d atomics, and are no races", clients*puts, n)
	}
	if n := appends(clover.NewTurns()); n > clients*puts/2 {
		t.Errorf("with turns %d PUTs take %d atomics, want at most half as many", clients*puts, n)
	}
}

// A PUT with Chase takes one more round trip for each append that it is behind. Without Chase it
// takes more.
func TestChaseTriesTheSuccessor(t *testing.T) {
	const key, size, rounds = 1, 40, 2
	for _, chase := range []bool{true, false} {
		g := newRig(t, simrack.Options{}, meta.Config{Format: layout.Hardened, Keys: 16}, region)
		stage := 0
		await := func(rt verbs.Runtime, n int) {
			for ; stage < n; rt.Sleep(100 * time.Microsecond) {
			}
		}
		g.clientOf("cn0", clover.Config{Chase: chase}, func(c *clover.Client, rt verbs.Runtime) error {
			err := errors.Join(c.Insert(key, value(key, 0, size), soon(rt)), c.Put(key, value(key, 1, size), soon(rt)))
			for behind := 1; behind <= rounds; behind++ {
				stage++
				await(rt, 2*behind)
				err = errors.Join(err, c.Put(key, value(key, 10+behind, size), soon(rt)))
				if n := c.Last().RTTs; chase != (n == 2+behind) {
					t.Errorf("chase %v: a PUT behind %d appends takes %d round trips", chase, behind, n)
				}
			}
			v, missing := c.Get(key, nil, soon(rt))
			if !bytes.Equal(v, value(key, 10+rounds, size)) {
				t.Errorf("chase %v: the value is %.20q", chase, v)
			}
			return errors.Join(err, missing)
		})
		g.client("cn1", func(c *clover.Client, rt verbs.Runtime) (err error) {
			for behind := 1; behind <= rounds; behind++ {
				await(rt, 2*behind-1)
				for n := range behind {
					err = errors.Join(err, c.Put(key, value(key, 20+n, size), soon(rt)))
				}
				stage++
			}
			return err
		})
		g.run()
	}
}
