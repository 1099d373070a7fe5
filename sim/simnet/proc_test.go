package simnet

import (
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

func TestProcsRunOneAtATimeInVirtualTime(t *testing.T) {
	n := New(Config{})
	var log []string
	say := func(p *Proc, s string) { log = append(log, n.Now().String()+" "+p.Name()+" "+s) }
	sleeper := n.Go("sleeper", false, func(p *Proc) {
		say(p, "sleeps")
		if p.Park(100, "time") {
			t.Error("woken, want the deadline")
		}
		say(p, "woke")
		if !p.Park(clock.Never, "the waker") {
			t.Error("deadline, want a wake")
		}
		say(p, "ends")
	})
	n.Go("waker", false, func(p *Proc) {
		say(p, "sleeps")
		p.Park(150, "time")
		say(p, "wakes")
		sleeper.Wake()
		sleeper.Wake() // a second Wake has no effect
		child := n.Go("child", false, func(p *Proc) { p.Park(200, "time") })
		p.Join(child)
		say(p, "joined")
	})
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	want := []string{
		"0s sleeper sleeps", "0s waker sleeps", "100ns sleeper woke", "150ns waker wakes",
		"150ns sleeper ends", "200ns waker joined",
	}
	if !slices.Equal(log, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(log, "\n"), strings.Join(want, "\n"))
	}
	n.Close()
}

func TestPanicOfAProcIsAnError(t *testing.T) {
	n := New(Config{})
	n.Go("fool", false, func(*Proc) { panic("spilt milk") })
	err := n.Run()
	if err == nil || !strings.Contains(err.Error(), "client fool panicked: spilt milk") {
		t.Errorf("error %v", err)
	}
	n.Close()
}

func TestCloseUnwindsProcs(t *testing.T) {
	n := New(Config{})
	unwound := false
	n.Go("server", true, func(p *Proc) {
		defer func() { unwound = true }()
		defer p.Park(clock.Never, "again, while it unwinds")
		p.Park(clock.Never, "requests")
		t.Error("Park returned")
	})
	n.Go("never-started", true, func(*Proc) { t.Error("started") })
	n.runReady()
	n.Close()
	n.Close()
	if !unwound {
		t.Error("deferred calls did not run")
	}
}

func TestKill(t *testing.T) {
	n := New(Config{})
	ended := 0
	wait := func(p *Proc) {
		defer func() { ended++ }()
		p.Park(clock.Never, "the end")
		t.Error("Park returned")
	}
	victim := n.Go("victim", false, wait)
	n.Go("killer", false, func(p *Proc) {
		unborn := n.Go("unborn", false, wait)
		victim.Kill()
		unborn.Kill()
		victim.Kill()
		p.Kill()
		p.Join(victim)
		p.Park(10, "time")
	})
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	if ended != 1 || !victim.Done() || n.Now() != 10 {
		t.Errorf("%d threads unwound at %v, want the one that had begun, at 10ns", ended, n.Now())
	}
	n.Close()
}

// A thread that hangs runs when it is resumed if it was woken before. One that was killed in
// between does not run.
func TestHungProcRunsWhenItIsResumed(t *testing.T) {
	n := New(Config{MaxTime: 1000, MaxEvents: 1000})
	defer n.Close()
	var at clock.Time
	p := n.Go("hangs", false, func(p *Proc) {
		p.Park(10, "time")
		at = n.Now()
	})
	killed := n.Go("is killed", false, func(p *Proc) {
		p.Park(10, "time")
		t.Error("the killed thread ran")
	})
	n.At(5, func() {
		p.Hang()
		killed.Hang()
	})
	n.At(30, killed.Kill)
	n.At(50, func() {
		p.Resume()
		killed.Resume()
	})
	if err := n.Run(); err != nil || at != 50 {
		t.Errorf("the thread ran at %v: %v", at, err)
	}
}
