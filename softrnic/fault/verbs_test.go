package fault

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// hitsOf returns which of the first n completions of each of the queue pairs a plan hits, as a line of
// dots and crosses for each.
func hitsOf(v *Verbs, n int, qpns ...wire.QPN) string {
	lines := make([]string, len(qpns))
	for range n {
		for i, q := range qpns {
			_, later, id := v.Completion(0, q)
			if (later > 0) != (id != "") {
				return "a hit without a rule"
			}
			lines[i] += map[bool]string{false: ".", true: "x"}[id != ""]
		}
	}
	return strings.Join(lines, " ")
}

func mustAdd(t *testing.T, v *Verbs, r VerbsRule) VerbsRule {
	t.Helper()
	out, err := v.Add(0, r)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// Nth counts on each queue pair, Count over all of them; a queue pair that is forgotten is a new one.
func TestVerbsRulesCount(t *testing.T) {
	v := NewVerbs(1, "cn0")
	r := mustAdd(t, v, VerbsRule{Kind: Late, Delay: 1, Nth: 3})
	if got := hitsOf(v, 5, 7, 8); got != "..x.. ..x.." {
		t.Errorf("nth: %s", got)
	}
	v.Forget(7)
	if got := hitsOf(v, 4, 7, 8); got != "..x. ...." {
		t.Errorf("after Forget: %s", got)
	}
	if l := v.List(0); l[0].Hits != 3 || l[0].State != Active || l[0].ID != "verbs-cn0-1" {
		t.Errorf("%+v", l)
	}
	if err := v.Remove(r.ID); err != nil {
		t.Fatal(err)
	}
	if err := v.Remove(r.ID); !errors.Is(err, ErrUnknownRule) {
		t.Error(err)
	}
	mustAdd(t, v, VerbsRule{Kind: Late, Delay: 1, Count: 3})
	if got := hitsOf(v, 3, 7, 8); got != "xx. x.." {
		t.Errorf("count: %s", got)
	}
	if n := v.Clear(0); n != 0 || v.List(0)[:0] == nil {
		t.Errorf("a spent rule counts as active: %d", n)
	}
	eight := wire.QPN(8)
	mustAdd(t, v, VerbsRule{Kind: Late, Delay: 1, QPN: &eight, For: 10})
	if got := hitsOf(v, 2, 7, 8); got != ".. xx" {
		t.Errorf("qpn: %s", got)
	}
	if _, _, id := v.Completion(10, 8); id != "" || v.List(10)[0].State != Expired {
		t.Error("a rule hits after its time")
	}
}

// A seed decides the choices, whatever numbers the queue pairs have.
func TestVerbsRulesAreSeeded(t *testing.T) {
	draw := func(seed uint64, qpns ...wire.QPN) string {
		v := NewVerbs(seed, "cn0")
		mustAdd(t, v, VerbsRule{Kind: Late, Delay: 1, Probability: 0.5})
		return hitsOf(v, 64, qpns...)
	}
	first := draw(1, 7, 8)
	if again := draw(1, 0x1234, 0x99); again != first {
		t.Errorf("%s, then %s", first, again)
	}
	if other := draw(2, 7, 8); other == first {
		t.Error("another seed makes the same choices")
	}
	one, two, _ := strings.Cut(first, " ")
	if hit := strings.Count(one, "x"); one == two || hit < 16 || hit > 48 {
		t.Errorf("%s and %s", one, two)
	}
}

// A post is refused with the error of its errno, a completion gets the status, a delay its jitter.
func TestVerbsEffects(t *testing.T) {
	v := NewVerbs(1, "cn0")
	for _, x := range refusals {
		r := mustAdd(t, v, VerbsRule{Kind: Post, Errno: x.errno})
		err := v.Post(0, 7)
		if op := (*verbs.OpError)(nil); !errors.Is(err, x.err) || !errors.As(err, &op) || !strings.Contains(err.Error(), r.ID) || !v.Posts(0) {
			t.Errorf("%s: %v", x.errno, err)
		}
		v.Clear(0)
	}
	if v.Posts(0) || v.Post(0, 7) != nil {
		t.Error("an empty plan refuses posts")
	}
	for i, word := range StatusWords() {
		mustAdd(t, v, VerbsRule{Kind: Completion, Status: word})
		if status, later, _ := v.Completion(0, 7); int(status) != i+1 || later != 0 {
			t.Errorf("%s: %d", word, status)
		}
		v.Clear(0)
	}
	if n := len(StatusWords()); n != int(verbs.GeneralErr) {
		t.Errorf("%d statuses", n)
	}
	mustAdd(t, v, VerbsRule{Kind: Late, Delay: 10 * time.Millisecond, Jitter: time.Millisecond})
	spread := map[time.Duration]bool{}
	for range 100 {
		_, later, _ := v.Completion(0, 7)
		if later < 9*time.Millisecond || later > 11*time.Millisecond {
			t.Fatal(later)
		}
		spread[later] = true
	}
	if len(spread) < 50 {
		t.Errorf("%d different delays", len(spread))
	}
}

// Wrong rules are refused, and a rule is shown as it is typed.
func TestVerbsRulesAreChecked(t *testing.T) {
	zero := wire.QPN(0)
	for _, r := range []VerbsRule{
		{},
		{Kind: "other"},
		{Kind: Completion},
		{Kind: Completion, Status: "SUCCESS"},
		{Kind: Completion, Status: "X"},
		{Kind: Post},
		{Kind: Post, Errno: "EX"},
		{Kind: Late},
		{Kind: Late, Delay: -1},
		{Kind: Late, Delay: 2 * time.Minute},
		{Kind: Late, Delay: 1, Jitter: -1},
		{Kind: Late, Delay: 1, Errno: "ENOMEM"},
		{Kind: Post, Errno: "ENOMEM", Delay: 1},
		{Kind: Late, Delay: 1, QPN: &zero},
		{Kind: Late, Delay: 1, Nth: -1},
		{Kind: Late, Delay: 1, Probability: 1.5},
		{Kind: Late, Delay: 1, Count: -1},
		{Kind: Late, Delay: 1, For: -1},
	} {
		var wrong *RuleError
		if _, err := NewVerbs(1, "cn0").Add(0, r); !errors.As(err, &wrong) {
			t.Errorf("%+v: %v", r, err)
		}
	}
	seven := wire.QPN(7)
	r := VerbsRule{Host: "cn0", Kind: Late, Delay: time.Millisecond, Jitter: 1000, QPN: &seven, Nth: 2, Probability: 0.1, Count: 1, For: time.Second, Seed: 9}
	if got, want := r.String(), "verbs cn0 late 1ms --jitter 1µs --qpn 0x7 --nth 2 --probability 10% --once --for 1s --seed 9"; got != want {
		t.Errorf("%s\nwant\n%s", got, want)
	}
	v := NewVerbs(1, "cn0")
	for range maxRules {
		mustAdd(t, v, VerbsRule{Kind: Late, Delay: 1})
	}
	if _, err := v.Add(0, VerbsRule{Kind: Late, Delay: 1}); !errors.Is(err, ErrTooMany) {
		t.Error(err)
	}
}
