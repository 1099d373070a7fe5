package fault

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A registered kind selects frames as the other kinds do, has a state for each rule and direction, and
// its verdict is carried out.
func TestRegisteredKind(t *testing.T) {
	remove := Register(Effect{Kind: "burst", Doc: "loses frames in bursts", New: func(r *Rule) Apply {
		n := 0
		return func(_ clock.Time, frame []byte, x uint64, v *Verdict) bool {
			if n++; n%3 == 0 {
				return false
			}
			v.Drop, v.Delay = n%3 == 1, v.Delay+r.Delay
			return len(frame) > 0 && x != 0
		}
	}})
	defer remove()
	rule := Rule{Link: "cn0", Kind: "burst", Delay: time.Millisecond}
	if err := rule.Validate(); err != nil {
		t.Fatal(err)
	}
	if got := rule.String(); got != "burst --delay 1ms --link cn0" {
		t.Errorf("%s", got)
	}
	s := NewSet(1, []string{"cn0"})
	if _, err := s.Add(0, rule); err != nil {
		t.Fatal(err)
	}
	frame := make([]byte, 60)
	for _, dir := range []Dir{Up, Down} {
		var got strings.Builder
		for range 6 {
			v := s.Injector("cn0", dir).Frame(0, frame)
			switch {
			case v.Drop:
				got.WriteByte('x')
			case v.Delay > 0:
				got.WriteByte('d')
			default:
				got.WriteByte('.')
			}
		}
		if got.String() != "xd.xd." {
			t.Errorf("%s: %s", dir, &got)
		}
	}
	if st := s.List(0)[0]; st.HitsUp != 4 || st.HitsDown != 4 {
		t.Errorf("%+v", st)
	}
	in := s.Injector("cn0", Up)
	if n := testing.AllocsPerRun(100, func() { in.Frame(0, frame) }); n > 0 {
		t.Errorf("%v allocations for a frame", n)
	}
	remove()
	if err := rule.Validate(); err == nil {
		t.Error("a removed kind is valid")
	}
}

// Names that are taken, or that are no names, are refused.
func TestRegisterRefuses(t *testing.T) {
	made := func(*Rule) Apply { return nil }
	for _, e := range []Effect{{Kind: Loss, New: made}, {Kind: "drop", New: made}, {Kind: "nic", New: made}, {Kind: "a b", New: made}, {Kind: "", New: made}, {Kind: "new"}} {
		func() {
			defer func() {
				if recover() == nil {
					t.Errorf("%q is registered", e.Kind)
				}
			}()
			Register(e)
		}()
	}
	if n := len(Effects()); n != 0 {
		t.Errorf("%d effects", n)
	}
}
