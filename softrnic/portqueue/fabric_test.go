package portqueue

import (
	"math"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const (
	gbit40  = 40_000_000_000
	longest = 1074
)

// lossless returns the configuration of an incast: priority 3 is lossless with this headroom, 4 is not.
func lossless(headroom int64) Config {
	cfg := Config{Rate: gbit40, Overhead: Overhead, Buffer: 9 << 20}
	cfg.Classes[3] = Class{Lossless: true, XOFF: 20_000, XON: 2 * longest, Headroom: headroom}
	return cfg
}

// incast sends 1 MB from each of n hosts to one port, and returns how many frames were lost.
func incast(t *testing.T, n int, cfg Config, delay, reaction time.Duration) (lost int, f *fabric) {
	f = newFabric(t, n+1, cfg)
	f.delay, f.reaction = delay, reaction
	f.worst = f.wireTime(longest)
	frame := roce(3, wire.ECT0, longest)
	const bytes = 1_000_000
	for i := range n {
		f.send(i, n, bytes/len(frame), frame)
	}
	f.run(clock.Time(time.Second))
	if u := f.sw.Used(); u != (Usage{}) {
		t.Errorf("%d hosts: at rest %+v", n, u)
	}
	if got, want := f.hosts[n].got[3]+f.lost, n*(bytes/len(frame)); got != want {
		t.Errorf("%d hosts: %d frames arrived or were lost, of %d", n, got, want)
	}
	return f.lost, f
}

// F2: no loss in an incast with the headroom of the formula; loss with two frames and a cell less while
// the reaction is as late as the formula allows, and loss without pauses.
func TestIncastHeadroom(t *testing.T) {
	const delay, reaction, cell = time.Microsecond, 2 * time.Microsecond, 64
	need := Headroom(gbit40, delay, reaction, longest)
	for _, n := range []int{8, 16, 32, 64} {
		lost, f := incast(t, n, lossless(need), delay, reaction)
		var pauses uint64
		var peak int64
		for i := range n {
			st := f.sw.Port(f.now, i)[3]
			pauses += st.TxPause
			peak = max(peak, st.HeadroomPeak)
		}
		if lost != 0 || pauses == 0 || peak > need {
			t.Errorf("%d hosts: %d frames lost, %d pause frames, %d of %d bytes of headroom used", n, lost, pauses, peak, need)
		}
		lost, _ = incast(t, n, lossless(need-2*longest-cell), delay, reaction)
		if lost == 0 {
			t.Errorf("%d hosts: nothing is lost with %d bytes less", n, 2*longest+cell)
		}
	}
	cfg := lossless(need)
	cfg.Classes[3] = Class{XOFF: 200_000}
	if lost, _ := incast(t, 64, cfg, delay, reaction); lost == 0 {
		t.Error("64 hosts without pauses: nothing is lost")
	}
}

// F6: while priority 3 is stopped, priority 4 loses nothing and keeps its rate; a global pause and a
// pause of priority 4, which is lossy, have no effect.
func TestOtherPriorityGoesOn(t *testing.T) {
	cfg := lossless(Headroom(gbit40, time.Microsecond, 0, longest))
	f := newFabric(t, 3, cfg)
	f.delay = time.Microsecond
	three, four := roce(3, wire.ECT0, longest), roce(4, wire.ECT0, longest)
	f.send(0, 2, math.MaxInt, three)
	f.send(1, 2, math.MaxInt, four)
	const start = clock.Time(100 * time.Microsecond)
	f.run(start)
	pause := wire.Pause{Enabled: 1<<3 | 1<<4, Time: [8]uint16{3: 0xffff, 4: 0xffff}}
	f.sw.Control(f.now, 2, pause.AppendTo(nil))
	f.sw.Control(f.now, 2, (&wire.Pause{Global: true, Time: [8]uint16{0xffff}}).AppendTo(nil))
	before := f.hosts[2].got
	const during = 600 * time.Microsecond
	f.run(start.Add(during))
	got := f.hosts[2].got
	line := float64(during) / float64(f.wireTime(len(four)))
	if n := got[4] - before[4]; float64(n) < .99*line || f.lost != 0 {
		t.Errorf("priority 4: %d frames of %.0f, %d lost", n, line, f.lost)
	}
	if n := got[3] - before[3]; n > 10 { // those on the way
		t.Errorf("priority 3: %d frames in its pause", n)
	}
}

// F7: a host has sent its last frame one frame time and the delay after the switch has decided.
func TestPauseIsObeyedInTime(t *testing.T) {
	cfg := lossless(1 << 20)
	f := newFabric(t, 2, cfg)
	f.delay = 2 * time.Microsecond
	f.sw.Pause(0, 1, 3, 0xffff) // so that the switch's queue grows
	f.send(0, 1, math.MaxInt, roce(3, wire.ECT0, longest))
	var decided clock.Time
	for end := clock.Time(0); end < clock.Time(200*time.Microsecond); end += 100 {
		f.run(end)
		if decided == 0 && f.sw.Port(f.now, 0)[3].Pausing {
			decided = f.now
		}
	}
	bound := f.wireTime(longest) + f.delay + f.wireTime(60) + 100 // the step of this test
	if late := f.hosts[0].last.Sub(decided); decided == 0 || late > bound {
		t.Errorf("decided at %v, the last frame began %v later; at most %v", decided, late, bound)
	}
}

// F3, F4: two ports, one slow. Senders that share a paused link with others are stopped with them: the
// victim of a lossless priority falls to the rate of the slow port's flows.
func TestVictimIsPausedToo(t *testing.T) {
	// Host 0 sends one frame to the busy port and one to the free port by turns; hosts 1 to 3 send to
	// the busy port. Without a pause the free port would get half a line.
	cfg := lossless(Headroom(gbit40, time.Microsecond, 0, longest))
	f := newFabric(t, 6, cfg)
	f.delay = time.Microsecond
	frame := roce(3, wire.ECT0, longest)
	for i := range 4 {
		f.send(i, 4, math.MaxInt, frame)
	}
	f.run(clock.Time(50 * time.Microsecond))
	turn := 0
	const end = clock.Time(2 * time.Millisecond)
	for at := f.now; at < end; at += 100 {
		if turn++; turn%2 == 0 {
			f.hosts[0].to = 5
		} else {
			f.hosts[0].to = 4
		}
		f.run(at)
	}
	line := float64(end) / float64(f.wireTime(len(frame)))
	victim := float64(f.hosts[5].got[3]) / line
	if victim > .35 || victim < .1 {
		t.Errorf("the victim has %.2f of the line, want about a quarter", victim)
	}
}
