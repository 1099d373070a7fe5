package fusee

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// After a silence of all servers that is longer than a lease, the leases begin again; not after a
// short one, and not twice before all members have answered.
func TestContactIsRegained(t *testing.T) {
	const lease = time.Second
	at := func(n int) clock.Time { return clock.Time(n) * clock.Time(lease) }
	for what, c := range map[string]struct {
		before *contact
		asked  clock.Time
		want   bool
	}{
		"a long silence":              {&contact{silent: true, last: at(1)}, at(2) + 1, true},
		"a silence of one lease":      {&contact{silent: true, last: at(1)}, at(2), false},
		"no silence":                  {&contact{last: at(1)}, at(9), false},
		"a second silence in a round": {&contact{silent: true, forgiven: true, last: at(1)}, at(9), false},
	} {
		x := c.before
		forgiven := x.forgiven || c.want
		if got := x.regained(c.asked, lease); got != c.want || x.silent || x.last != c.asked || x.forgiven != forgiven {
			t.Errorf("%s: %v, then silent %v, last %v, forgiven %v", what, got, x.silent, x.last, x.forgiven)
		}
	}
}

// What becomes of a server in each state: by revive, by pardon, and by doubts.
func TestServersCountAsAliveAgain(t *testing.T) {
	states := signs{{}, {dead: true, waited: 1}, {dead: true, waited: lastLeases}, {dead: true, kept: true, waited: lastLeases}, {lost: true}}
	for what, c := range map[string]struct {
		do   func(signs)
		dead [5]bool
	}{
		"revive": {signs.revive, [5]bool{}},
		"pardon": {signs.pardon, [5]bool{3: true}},
		"doubts": {func(s signs) {
			if !s.doubts() || s.doubts() {
				t.Error("doubts are not there once")
			}
		}, [5]bool{2: true, 3: true}},
	} {
		s := append(signs(nil), states...)
		c.do(s)
		for i := range s {
			if s[i].dead != c.dead[i] || s[i].alive() != (!c.dead[i] && !s[i].lost) {
				t.Errorf("%s: server %d is dead %v, alive %v", what, i, s[i].dead, s[i].alive())
			}
		}
		if s.watch(7); s[1].since != 7 || s[4].since != 7 {
			t.Errorf("%s: the leases did not begin again", what)
		}
	}
}
