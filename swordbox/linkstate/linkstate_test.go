package linkstate

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// leafSpine has leaves 0 to leaves-1 and spines behind them, each leaf with a trunk to each spine.
func leafSpine(leaves, spines int) Topology {
	t := Topology{Switches: leaves + spines}
	for l := range leaves {
		for s := range spines {
			t.Trunks = append(t.Trunks, Trunk{l, leaves + s})
		}
	}
	return t
}

func all(int) bool { return true }

func TestRoutesOfLeafAndSpine(t *testing.T) {
	topo := leafSpine(3, 2) // trunks: leaf 0: 0, 1; leaf 1: 2, 3; leaf 2: 4, 5
	r := topo.Routes(0, all)
	if want := [][]int{nil, {0, 1}, {0, 1}, {0}, {1}}; fmt.Sprint(r.Hops) != fmt.Sprint(want) {
		t.Errorf("hops of leaf 0: %v, want %v", r.Hops, want)
	}
	// Without trunk 2, spine 3 reaches leaf 1 no more in one step, so leaf 0 takes spine 4 alone.
	r = topo.Routes(0, func(c int) bool { return c != 2 })
	if want := [][]int{nil, {1}, {0, 1}, {0}, {1}}; fmt.Sprint(r.Hops) != fmt.Sprint(want) {
		t.Errorf("hops without trunk 2: %v, want %v", r.Hops, want)
	}
	r = topo.Routes(0, func(c int) bool { return c > 1 })
	if slices.ContainsFunc(r.Hops, func(h []int) bool { return len(h) > 0 }) || len(r.Tree) > 0 {
		t.Errorf("a leaf without trunks has routes: %v", r)
	}
}

// The trees of all switches are one tree: the same trunks, without a loop, that reach all.
func TestTheTreeSpansWithoutLoop(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		topo := leafSpine(1+rnd.IntN(6), 1+rnd.IntN(4))
		down := make(map[int]bool)
		for i := range topo.Trunks {
			down[i] = rnd.IntN(4) == 0
		}
		up := func(i int) bool { return !down[i] }
		ends := make(map[int]int)
		for s := range topo.Switches {
			for _, c := range topo.Routes(s, up).Tree {
				ends[c]++
			}
		}
		var tree []Trunk
		for c, n := range ends {
			if n != 2 || down[c] {
				t.Fatalf("seed %d: trunk %d, down %v, is in the tree of %d switches", seed, c, down[c], n)
			}
			tree = append(tree, topo.Trunks[c])
		}
		spanned := Topology{Switches: topo.Switches, Trunks: tree}
		for s := range topo.Switches {
			reached := 0
			whole, part := topo.distances(s, up), spanned.distances(s, all)
			for to := range topo.Switches {
				if (whole[to] >= 0) != (part[to] >= 0) {
					t.Fatalf("seed %d: the tree reaches %d from %d: %v, the trunks: %v", seed, to, s, part[to] >= 0, whole[to] >= 0)
				}
				if part[to] >= 0 {
					reached++
				}
			}
			if s == 0 && reached == topo.Switches && len(tree) != topo.Switches-1 {
				t.Fatalf("seed %d: a tree of %d switches has %d trunks", seed, topo.Switches, len(tree))
			}
		}
	}
}

// A path by any choice of hops ends at its switch: each step comes nearer.
func TestHopsComeNearer(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 2))
		topo := leafSpine(2+rnd.IntN(5), 1+rnd.IntN(4))
		dead := rnd.IntN(len(topo.Trunks))
		up := func(i int) bool { return i != dead }
		for from := range topo.Switches {
			for to := range topo.Switches {
				at := from
				for steps := 0; at != to; steps++ {
					hops := topo.Routes(at, up).Hops[to]
					if len(hops) == 0 {
						if topo.distances(to, up)[at] >= 0 {
							t.Fatalf("seed %d: no hop from %d to %d", seed, at, to)
						}
						break
					}
					at, _ = topo.Trunks[hops[rnd.IntN(len(hops))]].other(at)
					if steps > topo.Switches {
						t.Fatalf("seed %d: a loop between %d and %d", seed, from, to)
					}
				}
			}
		}
	}
}

// lab has the machines of all switches, and carries their messages.
type lab struct {
	topo     Topology
	machines []*Machine
	cut      map[int]bool // trunks that carry nothing
	dead     map[int]bool // switches that say nothing
	now      clock.Time
}

func newLab(topo Topology) *lab {
	l := &lab{topo: topo, cut: map[int]bool{}, dead: map[int]bool{}, now: 1}
	for s := range topo.Switches {
		l.machines = append(l.machines, New(topo, s, uint64(1000*(s+1))))
		for i, c := range topo.Trunks {
			if _, own := c.other(s); own {
				l.machines[s].Carrier(l.now, i, true)
			}
		}
	}
	return l
}

// run lets time pass in steps of a millisecond.
func (l *lab) run(d time.Duration) {
	for range d / time.Millisecond {
		l.now = l.now.Add(time.Millisecond)
		for s, m := range l.machines {
			if l.dead[s] || m.Deadline() > l.now || !m.Tick(l.now) {
				continue
			}
			b := m.Append(nil, wire.MAC{2})
			for i, c := range l.topo.Trunks {
				if far, own := c.other(s); own && !l.cut[i] && !l.dead[far] {
					l.machines[far].Receive(l.now, i, b)
				}
			}
		}
	}
}

// agree fails unless all switches that live say that exactly the trunks of want are up.
func (l *lab) agree(t *testing.T, want func(trunk int) bool) {
	t.Helper()
	for s, m := range l.machines {
		for i := range l.topo.Trunks {
			if !l.dead[s] && m.Up(i) != want(i) {
				t.Errorf("switch %d says of trunk %d: up %v, want %v", s, i, m.Up(i), want(i))
			}
		}
	}
}

func TestSwitchesAgree(t *testing.T) {
	l := newLab(leafSpine(4, 2))
	l.run(10 * time.Millisecond)
	l.agree(t, all)
	// A trunk that is cut without a loss of its carrier.
	l.cut[3] = true
	l.run(Silence + 2*Interval)
	l.agree(t, func(i int) bool { return i != 3 })
	l.cut[3] = false
	l.run(2 * Interval)
	l.agree(t, all)
	// A trunk that loses its carrier at one end: all know it within two messages.
	l.machines[1].Carrier(l.now, 2, false)
	l.run(3 * time.Millisecond)
	l.agree(t, func(i int) bool { return i != 2 })
	l.machines[1].Carrier(l.now, 2, true)
	l.run(2 * Interval)
	l.agree(t, all)
	// A spine that crashes, and comes back with a number of its own.
	l.dead[4] = true
	l.run(Silence + 2*Interval)
	l.agree(t, func(i int) bool { return i%2 == 1 })
	l.dead[4] = false
	l.machines[4] = New(l.topo, 4, 7) // smaller than that of the former incarnation
	for i, c := range l.topo.Trunks {
		if _, own := c.other(4); own {
			l.machines[4].Carrier(l.now, i, true)
		}
	}
	l.run(4 * Interval)
	l.agree(t, all)
}

// Messages that are lost with some probability do not take a trunk away.
func TestSomeLossDoesNoHarm(t *testing.T) {
	l := newLab(leafSpine(2, 2))
	rnd := rand.New(rand.NewPCG(1, 1))
	l.run(10 * time.Millisecond)
	for range 400 {
		for i := range l.topo.Trunks {
			l.cut[i] = rnd.IntN(5) == 0
		}
		l.run(10 * time.Millisecond)
		l.agree(t, all)
	}
}

// A message counts only on the trunk of its sender.
func TestForeignMessages(t *testing.T) {
	l := newLab(leafSpine(2, 1))
	b := l.machines[1].Append(nil, wire.MAC{2})
	l.machines[0].Receive(l.now, 0, b) // the trunk leads to the spine, switch 2
	if l.machines[0].records[1].number != 0 {
		t.Error("a message of another switch was taken")
	}
	before := l.machines[0].records[2]
	b = l.machines[2].Append(nil, wire.MAC{2})
	for cut := range len(b) {
		l.machines[0].Receive(l.now, 0, b[:cut])
	}
	if l.machines[0].records[2] != before {
		t.Error("a message that was cut short was taken")
	}
	l.machines[0].Receive(l.now, 0, b)
	if l.machines[0].records[2] == before {
		t.Error("the whole message was not taken")
	}
}

// Whatever comes, the machine does not panic, and says nothing of trunks that are not the sender's.
func FuzzReceive(f *testing.F) {
	topo := leafSpine(3, 2)
	m := New(topo, 3, 5)
	f.Add(m.Append(nil, wire.MAC{2}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, b []byte) {
		m := New(topo, 0, 1)
		m.Carrier(1, 0, true)
		m.Receive(2, 0, b)
		for s := range m.records {
			for i, c := range topo.Trunks {
				if _, own := c.other(s); !own && m.records[s].works.has(i) {
					t.Fatalf("switch %d speaks of trunk %d", s, i)
				}
			}
		}
		m.Routes()
		m.Receive(3, 0, m.Append(nil, wire.MAC{2}))
	})
}
