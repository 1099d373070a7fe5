package serialize

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

var (
	ruleSeed  = flag.Uint64("rule-seed", 0, "replay only this seed of random rules")
	ruleSeeds = flag.Int("rule-seeds", 20, "how many seeds of random rules at each window")
)

// randomRules draws rules that an operator may load for the server.
func (w *world) randomRules(r *rand.Rand) []rules.Rule {
	ranged := func() rules.Rule {
		return rules.Rule{
			Server: ipOf(serverIP), Action: rules.Atomics, From: w.server.base, To: w.server.base + []uint64{8, 1024, area}[r.IntN(3)],
		}
	}
	switch r.IntN(6) {
	case 0:
		return nil
	case 1:
		return atomicsRule(1 + r.IntN(3))
	case 2:
		return moveRule(1 + r.IntN(3))
	case 3:
		list := atomicsRule(1)
		list[0].Misses = rules.Answerer(r.IntN(3))
		return list
	case 4:
		return append([]rules.Rule{ranged()}, moveRule(1)...)
	}
	return []rules.Rule{ranged()}
}

// exchange replaces the machine's rules, and makes the shared connections that they need.
func (w *world) exchange(r *rand.Rand) {
	w.useRules(w.randomRules(r)...)
	w.g.todo = append(w.g.todo, func(c *pipeline.Ctx) {
		for _, s := range w.m.servers {
			s.resize()
			for shard, l := range s.links {
				if l.conn.State() == requester.Idle {
					w.attach(c, shard, 16)
				}
			}
		}
	})
}

func runRandomRules(t *testing.T, seed uint64, window int, nics func(*engine.Config)) {
	r := rand.New(rand.NewPCG(seed, 5))
	rc := rigConfig{seed: seed, engine: nics, clients: 3 + r.IntN(3), shards: 1 + r.IntN(2), depth: 1 + r.IntN(16)}
	rc.rules = atomicsRule(rc.shards)
	mix := [][]string{
		{"lock", "lock", "count", "own"}, {"lock", "count", "own", "small", "read", "medium"}, {"count", "own", "ownWrite", "large", "readLarge"}, allMix,
	}[r.IntN(4)]
	w := newWorld(t, rc, mix, 80, []int{1, 2, 8, 30}[r.IntN(4)])
	w.faults = chance{loss: r.IntN(30), dup: r.IntN(30), late: r.IntN(60)}
	next, changes := w.now, 0
	pause := []int{300, 2000, 15000}[r.IntN(3)]
	w.extra = func() {
		if w.now < next {
			return
		}
		changes++
		next = w.now.Add(time.Duration(20+r.IntN(pause)) * time.Microsecond)
		w.exchange(r)
	}
	w.drive(20 * time.Second)
	if t.Failed() {
		t.Logf("%d changes of rules, mix %v, faults %+v\n%s", changes, mix, w.faults, w.state())
		t.Logf("replay: go test ./swordbox/serialize -run TestRandomRules/window=%d -rule-seed %d", window, seed)
	}
}

// The rules change at random while clients work and packets are lost: atomics are replaced or move,
// in ranges or everywhere, on one shared connection or several, or nothing is done. Every
// completion, every answer and every byte of memory is as it would be without a switch.
func TestRandomRules(t *testing.T) {
	eachWindow(t, func(t *testing.T, window int, nics func(*engine.Config)) {
		if *ruleSeed != 0 {
			runRandomRules(t, *ruleSeed, window, nics)
			return
		}
		for seed := range uint64(*ruleSeeds) {
			t.Run(fmt.Sprint("seed=", seed+1), func(t *testing.T) { runRandomRules(t, seed+1, window, nics) })
		}
	})
}
