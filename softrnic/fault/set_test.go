package fault

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

func TestSetLifeOfRules(t *testing.T) {
	s := NewSet(1, []string{"cn0", "ms0"})
	once, err := s.Add(0, Rule{Link: "cn0", Dir: Up, Kind: Loss, Count: 1})
	if err != nil || once.ID != "f1" {
		t.Fatalf("Add = %+v, %v", once, err)
	}
	short, _ := s.Add(0, Rule{Link: "ms0", Kind: Duplicate, For: 100})
	long, _ := s.Add(0, Rule{ID: "mine", Link: "ms0", Kind: Loss, Probability: 0.5})
	if short.Dir != Both || long.ID != "mine" {
		t.Errorf("Add = %+v, %+v", short, long)
	}
	if !s.Injector("cn0", Up).Frame(1, arp()).Drop || s.Injector("cn0", Up).Frame(2, arp()).Drop {
		t.Error("once is not once")
	}
	if s.Injector("cn0", Up).Active() || !s.Injector("ms0", Down).Active() || s.Injector("cn99", Up) != nil {
		t.Error("wrong injectors are active")
	}
	s.Injector("ms0", Down).Frame(3, arp())
	list := s.List(40)
	if len(list) != 3 || list[0].State != Spent || list[0].HitsUp != 1 || list[1].State != Active ||
		list[1].Remaining != 60 || list[1].HitsDown != 1 {
		t.Errorf("List = %+v", list)
	}
	if list = s.List(100); list[1].State != Expired || list[1].HitsDown != 1 {
		t.Errorf("List after the end = %+v", list[1])
	}
	if err := s.Remove("mine"); err != nil {
		t.Error(err)
	}
	if n, err := s.Heal(100, ""); n != 0 || err != nil || len(s.List(100)) != 0 {
		t.Errorf("Heal = %d, %v; left %v", n, err, s.List(100))
	}
}

func TestSetRefusals(t *testing.T) {
	s := NewSet(1, []string{"cn0"})
	add := func(r Rule) error { _, err := s.Add(0, r); return err }
	if err := add(Rule{Link: "cn9", Kind: Loss}); !errors.Is(err, ErrUnknownLink) || !strings.Contains(err.Error(), "cn0") {
		t.Errorf("unknown link: %v", err)
	}
	if err := add(Rule{Link: "cn0", Kind: Tear}); !errors.Is(err, ErrNotOnLink) {
		t.Errorf("tear: %v", err)
	}
	if err := add(Rule{ID: "a", Link: "cn0", Kind: Loss}); err != nil {
		t.Error(err)
	}
	if err := add(Rule{ID: "a", Link: "cn0", Kind: Loss}); !errors.Is(err, ErrDuplicateID) {
		t.Errorf("duplicate: %v", err)
	}
	if r, err := s.Add(0, Rule{ID: "f2", Link: "cn0", Kind: Loss}); err != nil || r.ID != "f2" {
		t.Errorf("%+v, %v", r, err)
	}
	for _, want := range []string{"f3", "f4"} {
		if r, err := s.Add(0, Rule{Link: "cn0", Kind: Loss}); err != nil || r.ID != want {
			t.Errorf("named %q, want %q; %v", r.ID, want, err)
		}
	}
	if err := s.Remove("b"); !errors.Is(err, ErrUnknownRule) {
		t.Errorf("unknown rule: %v", err)
	}
	if _, err := s.Heal(0, "cn9"); !errors.Is(err, ErrUnknownLink) {
		t.Errorf("heal: %v", err)
	}
	for range 2 * maxRules {
		if err := add(Rule{Link: "cn0", Kind: Loss, For: 1}); err != nil && !errors.Is(err, ErrTooMany) {
			t.Fatal(err)
		}
	}
	if n := len(s.rules); n != maxRules {
		t.Errorf("%d rules held", n)
	}
	if _, err := s.Add(10, Rule{Link: "cn0", Kind: Loss}); err != nil { // the others have expired
		t.Errorf("after the others ended: %v", err)
	}
}

// A rule that is added to a Set makes the same faults as a rule at the same place in a list for
// NewInjector.
func TestSetAgreesWithInjector(t *testing.T) {
	rules := []Rule{{Link: "cn1", Kind: Loss}, {Link: "cn0", Kind: Corrupt, Probability: 0.3}}
	s := NewSet(9, []string{"cn0", "cn1"})
	for _, r := range rules {
		if _, err := s.Add(0, r); err != nil {
			t.Fatal(err)
		}
	}
	in := NewInjector(9, "cn0", Down, rules)
	for i := range 500 {
		a, b := in.Frame(0, arp()), s.Injector("cn0", Down).Frame(0, arp())
		if a.Corrupt != b.Corrupt || a.Bit != b.Bit || !slices.Equal(a.Rules, b.Rules) {
			t.Fatalf("frame %d: %+v and %+v", i, a, b)
		}
	}
}

func TestValidate(t *testing.T) {
	for field, r := range map[string]Rule{
		"kind":               {Link: "a", Kind: "lose"},
		"link":               {Kind: Loss},
		"id":                 {ID: "a/b", Link: "a", Kind: Loss},
		"dir":                {Link: "a", Kind: Loss, Dir: "left"},
		"probability":        {Link: "a", Kind: Loss, Probability: 1.5},
		"count":              {Link: "a", Kind: Loss, Count: -1},
		"for":                {Link: "a", Kind: Loss, For: -1},
		"delay":              {Link: "a", Kind: Loss, Delay: 1},
		"jitter":             {Link: "a", Kind: Reorder, Jitter: 1},
		"bitsPerSecond":      {Link: "a", Kind: Rate},
		"match.class":        {Link: "a", Kind: Loss, Match: Match{Class: "x"}},
		"match.qpn":          {Link: "a", Kind: Loss, Match: Match{QPN: ptr(wire.QPN(1 << 24))}},
		"match.psn":          {Link: "a", Kind: Loss, Match: Match{PSN: ptr(wire.PSN(1 << 24))}},
		"match.psnOffset":    {Link: "a", Kind: Loss, Match: Match{PSNOffset: ptr(-1)}},
		"match.transmission": {Link: "a", Kind: Loss, Match: Match{Transmission: -1}},
		"match.opcodes":      {Link: "a", Kind: Loss, Match: Match{Class: "cnp", Opcodes: []wire.Opcode{wire.RCAck}}},
	} {
		var e *RuleError
		if err := r.Validate(); !errors.As(err, &e) || e.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	more := []Rule{
		{Link: "a", Kind: Loss, ID: ".."}, // as a path this would name another link
		{Link: "a", Kind: Loss, Probability: math.NaN()},
		{Link: "a", Kind: Loss, Match: Match{Class: "onerma_data", Transmission: 1}},
		{Link: "a", Kind: Loss, Match: Match{Class: "onerma", Opcodes: []wire.Opcode{wire.RCAck}}},
		{Link: "a", Kind: Delay},
		{Link: "a", Kind: Delay, Delay: time.Hour},
		{Link: "a", Kind: Rate, BitsPerSecond: 1},
		{Link: "a", Kind: Rate, BitsPerSecond: 1e9, Probability: 0.5},
		{Link: "a", Kind: Blackhole, Count: 1},
		{Link: "a", Kind: Tear, Dir: Up},
		{Link: "a", Kind: Loss, Match: Match{PSN: ptr(wire.PSN(1)), PSNOffset: ptr(1)}},
	}
	for _, r := range more {
		if r.Validate() == nil {
			t.Errorf("%+v passes", r)
		}
	}
}

func TestRuleText(t *testing.T) {
	for want, r := range map[string]Rule{
		"loss 10% --link cn0 --dir up --for 10s": {Kind: Loss, Probability: 0.1, Link: "cn0", Dir: Up, For: 10 * time.Second},
		"delay 1ms --jitter 200µs --link cn0":    {Kind: Delay, Delay: time.Millisecond, Jitter: 200 * time.Microsecond, Link: "cn0", Dir: Both},
		"rate 2500Mbit --link cn0 --seed 3":      {Kind: Rate, BitsPerSecond: 2_500_000_000, Link: "cn0", Seed: 3},
		"tear 5% --host ms0":                     {Kind: Tear, Probability: 0.05, Link: "ms0"},
		"loss --qpn 0x11 --psn-offset 5 --same-packet --next 2 --link cn0": {
			Kind: Loss, Count: 2, Link: "cn0",
			Match: Match{QPN: ptr(wire.QPN(0x11)), PSNOffset: ptr(5), SamePacket: true},
		},
	} {
		if got := r.String(); got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	}
}

func TestNamed(t *testing.T) {
	var ids []string
	for _, r := range Named([]Rule{{}, {ID: "f3"}, {}, {ID: "x"}}) {
		ids = append(ids, r.ID)
	}
	if want := []string{"f1", "f3", "f3_", "x"}; !slices.Equal(ids, want) {
		t.Errorf("names %v, want %v", ids, want)
	}
}

// The same rules have the same names and make the same faults after a heal.
func TestSameRulesAgainDoTheSame(t *testing.T) {
	s := NewSet(1, []string{"a"})
	var runs [2][]bool
	for run := range runs {
		for range 2 {
			if _, err := s.Add(0, Rule{Link: "a", Kind: Loss, Probability: 0.3}); err != nil {
				t.Fatal(err)
			}
		}
		for range 200 {
			v := s.Injector("a", Up).Frame(0, make([]byte, 60))
			runs[run] = append(runs[run], v.Drop)
		}
		if n, err := s.Heal(0, ""); n != 2 || err != nil {
			t.Fatalf("Heal = %d, %v", n, err)
		}
	}
	if !slices.Equal(runs[0], runs[1]) || !slices.Contains(runs[0], true) {
		t.Errorf("first %v\nagain %v", runs[0], runs[1])
	}
}

// A rule that replaces others takes the place and the name of the first, and leaves other kinds, links
// and directions. A rule that is refused leaves all.
func TestReplace(t *testing.T) {
	s := NewSet(1, []string{"cn0", "cn1"})
	add := func(r Rule) Rule {
		t.Helper()
		r, err := s.Add(0, r)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	add(Rule{Link: "cn0", Kind: Loss, Probability: 0.1})
	add(Rule{Link: "cn0", Kind: Loss, Probability: 0.2, ID: "mine"})
	add(Rule{Link: "cn0", Kind: Loss, Dir: Up, Probability: 0.3})
	add(Rule{Link: "cn0", Kind: Delay, Delay: time.Second})
	add(Rule{Link: "cn1", Kind: Loss, Probability: 0.4})
	texts := func() (out string) {
		for _, st := range s.List(0) {
			out += st.ID + ": " + st.Rule.String() + "\n"
		}
		return out
	}
	r, err := s.Replace(0, Rule{Link: "cn0", Kind: Loss, Probability: 0.5})
	if err != nil || r.ID != "f1" {
		t.Errorf("%+v, %v", r, err)
	}
	if want := "f3: loss 30% --link cn0 --dir up\nf4: delay 1s --link cn0\nf5: loss 40% --link cn1\nf1: loss 50% --link cn0\n"; texts() != want {
		t.Errorf("%s\nwant\n%s", texts(), want)
	}
	if _, err := s.Replace(0, Rule{Link: "cn1", Kind: Corrupt, Probability: 0.5, ID: "f3"}); err != nil {
		t.Error(err)
	}
	if want := "f4: delay 1s --link cn0\nf5: loss 40% --link cn1\nf1: loss 50% --link cn0\nf3: corrupt 50% --link cn1\n"; texts() != want {
		t.Errorf("%s\nwant\n%s", texts(), want)
	}
	before := texts()
	for _, bad := range []Rule{{Link: "cn9", Kind: Loss, Probability: 0.5}, {Link: "cn0", Kind: Delay}, {Link: "cn0", Kind: Loss, Probability: 7, ID: "f1"}} {
		if _, err := s.Replace(0, bad); err == nil || texts() != before {
			t.Errorf("%+v: %v\n%s", bad, err, texts())
		}
	}
	// What replaces nothing is added, and the next name is the next number.
	if r, err := s.Replace(0, Rule{Link: "cn1", Kind: Blackhole}); err != nil || r.ID != "f6" {
		t.Errorf("%+v, %v", r, err)
	}
	for range 3 {
		if _, err := s.Replace(0, Rule{Link: "cn1", Kind: Blackhole}); err != nil {
			t.Error(err)
		}
	}
	if r := add(Rule{Link: "cn1", Kind: Duplicate, Probability: 1}); r.ID != "f7" {
		t.Errorf("the next rule is %s", r.ID)
	}
}
