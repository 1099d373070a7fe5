package scenario

import (
	"fmt"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	publishedsteer "github.com/rdmalab/rdmalab/swordbox/published/cloversteer"
)

// broken is an append whose request or answer is lost, and the times at which machines die after
// that.
type broken struct {
	answer      bool          // the answer is lost, not the request
	client, box time.Duration // time until the client, or the switch, dies; negative: it does not die
}

func (b broken) String() string {
	return fmt.Sprintf("answer lost %v, client dies after %v, switch after %v", b.answer, b.client, b.box)
}

// lives is the time of death of a machine that does not die.
const lives = time.Duration(-1)

// chainWatch reads the chain whenever a packet passes, because memory changes only then.
type chainWatch struct {
	told []layout.Handle // nodes whose appends were acknowledged to their clients
	// from and until are the first and the last time at which one of these nodes was missing from the
	// chain; 0: never.
	from, until clock.Time
}

func (w *chainWatch) look(s *holeStore, now clock.Time) {
	if len(w.told) == 0 {
		return
	}
	in := make(map[layout.Handle]bool)
	for _, n := range s.chain(1) {
		in[n] = true
	}
	for _, n := range w.told {
		if !in[n] {
			if w.until = now; w.from == 0 {
				w.from = now
			}
			return
		}
	}
}

// play runs a script: client 1 appends node 3, which is lost, and client 2 appends node 4, while
// the planned machines die. It returns the time of the loss, what was observed of the chain, and
// the damage.
func (b broken) play(t *testing.T, mode string) (lost clock.Time, w *chainWatch, damage []string) {
	t.Helper()
	w = &chainWatch{}
	o := hole{action: "steer", params: rdmacm.Params{Timeout: 8}}
	var h *holeRun
	var s *holeStore
	o.spy = func(_ *holeTap, ev *simnet.Event) { w.look(s, ev.At) }
	o.script = func(*holeRun) {
		s.format(steerKey)
		c, d := h.clients[1], h.clients[2]
		h.expect(s.node(c, 3, 1, steerKey), "the node of client 1")
		h.expect(s.node(d, 4, 1, steerKey), "the node of client 2")
		if b.answer {
			h.faults("ms0", lose(fault.Up, 1, wire.RCAtomicAck))
		} else {
			h.faults("ms0", lose(fault.Down, 1, wire.RCCmpSwap))
		}
		lost = h.rt.Now()
		first := s.link(c, 2, 1, 3, 1)
		if b.client >= 0 {
			h.rack.At(lost.Add(b.client), c.host.Crash)
		}
		if b.box >= 0 {
			h.rack.At(lost.Add(b.box), h.rack.CrashSwitch)
			h.rack.At(lost.Add(b.box+time.Millisecond), func() {
				if err := h.rack.RestartSwitch(); err != nil {
					h.harm("restart: %v", err)
				}
			})
		}
		h.rt.Sleep(3 * time.Microsecond)
		// A client whose append is not acknowledged looks for its node in the chain before it tries
		// again.
		if s.linked(s.link(d, 2, 1, 4, 1), "the append of client 2") {
			w.told = append(w.told, 4)
		} else if s.retry(d, 4); len(h.damage) == 0 {
			w.told = append(w.told, 4)
		}
		if b.client < 0 {
			if !s.linked(first, "the append of client 1") && !s.inChain(3) {
				s.retry(c, 3)
			}
			w.told = append(w.told, 3)
		}
		h.rt.Sleep(100 * time.Millisecond)
		w.look(s, h.rt.Now())
		s.get(h.clients[3], layout.Location{Handle: 1, Version: firstEnd}, steerKey)
		w.look(s, h.rt.Now())
	}
	chain := Scenario{Name: "chain", run: func(e *env) error {
		h = &holeRun{hole: &o, env: e, mode: mode}
		s = &holeStore{run: h, space: steerSpace}
		e.spy = func(ev *simnet.Event) { o.spy(h.tap, ev) }
		return h.play()
	}}
	if r := chain.Run(1, Options{}); r.Err != nil {
		t.Errorf("mode %s, %v: %v", mode, b, r.Err)
	}
	return lost, w, h.damage
}

func (s *holeStore) inChain(n layout.Handle) bool {
	for _, x := range s.chain(1) {
		if x == n {
			return true
		}
	}
	return false
}

// deaths lists the times after the loss at which a client or the switch may die while its append is
// in flight; a round trip takes about 10 µs.
func deaths() (list []time.Duration) {
	list = append(list, lives)
	for d := time.Duration(0); d <= 30*time.Microsecond; d += 5 * time.Microsecond {
		list = append(list, d)
	}
	return append(list, time.Millisecond, 1100*time.Microsecond, 5*time.Millisecond)
}

// In mode hardened, for every loss and every time of death, each acknowledged node is in its chain
// at every instant: no chain needs a repair, even after both machines have died.
func TestNoDeathBreaksAChain(t *testing.T) {
	t.Parallel()
	runs := 0
	for _, answer := range []bool{false, true} {
		for _, client := range deaths() {
			for _, box := range deaths() {
				if runs++; testing.Short() && runs%4 != 0 {
					continue
				}
				b := broken{answer, client, box}
				_, w, damage := b.play(t, recordedHardened)
				if w.from != 0 || len(damage) > 0 || len(w.told) == 0 {
					t.Errorf("%v: nodes %v, chain broken from %v to %v; %v", b, w.told, w.from, w.until, damage)
				}
			}
		}
	}
}

// In mode published the same loss breaks the chain. The control plane repairs it within the
// promised time, also if the client is dead. If the switch dies as well, the chain stays broken,
// which the paper leaves open.
func TestControlPlaneRepairsTheChain(t *testing.T) {
	t.Parallel()
	dead := broken{client: 3 * time.Microsecond, box: lives}
	lost, w, _ := dead.play(t, recordedPublished)
	took := w.until.Sub(lost)
	t.Logf("mode published, client dead: the chain was broken until %v after the loss", took)
	if w.from == 0 || took <= 0 || took > publishedsteer.Bound {
		t.Errorf("the chain was broken from %v to %v, %v after the loss; want it broken and whole within %v", w.from, w.until, took, publishedsteer.Bound)
	}
	dead.box = 200 * time.Microsecond
	_, w, _ = dead.play(t, recordedPublished)
	if w.until.Sub(w.from) < 90*time.Millisecond {
		t.Errorf("client and switch dead: broken from %v to %v, want for ever", w.from, w.until)
	}
	answer := broken{answer: true, client: 3 * time.Microsecond, box: lives}
	if _, w, damage := answer.play(t, recordedPublished); w.from != 0 || len(damage) > 0 {
		t.Errorf("an answer lost breaks nothing, and the repair must not either: from %v to %v; %v", w.from, w.until, damage)
	}
}
