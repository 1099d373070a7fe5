package scenario

import (
	"fmt"
	"testing"
)

// These seeds once failed, and their runs were right: a check did not allow what had happened.
func TestSeedsThatFailedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		seeds []uint64
	}{
		{"transport", []uint64{8320002560}},           // a client repeats the tail of a READ until its retries are used up
		{"buffer", []uint64{8320000228, 8320000721}},  // the switch is down while the senders send
		{"hostile", []uint64{8320000035, 8320000361}}, // the attacker floods queue pairs of its own connections, too
	} {
		for _, seed := range c.seeds {
			t.Run(fmt.Sprint(c.name, " ", seed), func(t *testing.T) {
				t.Parallel()
				if r := mustFind(t, c.name).Run(seed, Options{}); r.Err != nil {
					t.Error(r.Err)
				}
			})
		}
	}
}
