package fault

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Kind ecn selects packets as other kinds do: here the fifth packet of a queue pair, once.
func TestMarkSelectsPackets(t *testing.T) {
	offset := 4
	r := Rule{Link: "cn0", Kind: Mark, Dir: Up, Count: 1, Match: Match{PSNOffset: &offset}}
	if err := r.Validate(); err != nil {
		t.Fatal(err)
	}
	if got, want := r.String(), "ecn --psn-offset 4 --once --link cn0 --dir up"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	in := NewInjector(1, "cn0", Up, []Rule{r})
	for i := range 8 {
		f := wire.Frame{IPv4: wire.IPv4{TTL: 9, Src: [4]byte{10, 0, 0, 1}, Dst: [4]byte{10, 0, 0, 2}}}
		f.BTH.Opcode, f.BTH.DestQP, f.BTH.PSN = wire.RCSendOnly, 7, wire.PSN(100+i)
		v := in.Frame(0, f.AppendTo(nil))
		if v.Mark != (i == 4) || v.Passes() == v.Mark {
			t.Errorf("packet %d: %+v", i, v)
		}
	}
	// Frames that are not IP have no field to set, and are no hits.
	all := NewInjector(1, "cn0", Up, []Rule{{Link: "cn0", Kind: Mark}})
	if v := all.Frame(0, make([]byte, 60)); !v.Passes() || all.all[0].hits != 0 {
		t.Errorf("%+v, %d hits", v, all.all[0].hits)
	}
}

// Kind pause hits no frame; it names priorities while it lasts, in its direction.
func TestStorm(t *testing.T) {
	r := Rule{Link: "cn0", Kind: Storm, Dir: Down, Priority: 3, For: time.Second}
	if got, want := r.String(), "pause 3 --link cn0 --dir down --for 1s"; got != want || r.Validate() != nil {
		t.Errorf("%q, want %q; %v", got, want, r.Validate())
	}
	s := NewSet(1, []string{"cn0"})
	for _, r := range []Rule{r, {Link: "cn0", Kind: Storm}} {
		if _, err := s.Add(0, r); err != nil {
			t.Fatal(err)
		}
	}
	up, down := s.Injector("cn0", Up), s.Injector("cn0", Down)
	if v := down.Frame(0, make([]byte, 60)); !v.Passes() {
		t.Errorf("%+v", v)
	}
	for _, c := range []struct {
		at       time.Duration
		up, down uint8
		end      clock.Time
	}{{0, 1, 9, clock.Time(time.Second)}, {time.Second - 1, 1, 9, clock.Time(time.Second)}, {time.Second, 1, 1, clock.Never}} {
		u, never := up.Storms(clock.Time(c.at))
		if d, end := down.Storms(clock.Time(c.at)); u != c.up || d != c.down || never != clock.Never || end != c.end {
			t.Errorf("at %v: %b up, %b down until %v", c.at, u, d, end)
		}
	}
	if list := s.List(clock.Time(time.Second)); list[0].State != Expired || list[0].HitsDown != 2 || list[1].Hits != 6 {
		t.Errorf("%+v", list)
	}
}

func TestCongestionKindsAreChecked(t *testing.T) {
	for _, c := range []struct {
		r     Rule
		field string
	}{
		{Rule{Kind: Storm, Priority: 8}, "priority"},
		{Rule{Kind: Storm, Priority: -1}, "priority"},
		{Rule{Kind: Loss, Priority: 3}, "priority"},
		{Rule{Kind: Storm, Count: 1}, "kind"},
		{Rule{Kind: Storm, Probability: .5}, "kind"},
		{Rule{Kind: Storm, Match: Match{Class: "cnp"}}, "kind"},
		{Rule{Kind: Mark, Delay: time.Second}, "delay"},
	} {
		c.r.Link = "cn0"
		var e *RuleError
		if err := c.r.Validate(); !errors.As(err, &e) || e.Field != c.field {
			t.Errorf("%+v: %v, want field %s", c.r, err, c.field)
		}
	}
}
