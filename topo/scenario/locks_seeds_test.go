package scenario

import (
	"fmt"
	"testing"
)

// Seeds that once found something, and what.
func TestLocksThatFailedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		seeds []uint64
	}{
		{"locks", []uint64{
			2002880, 5515, // a client that was silent while its server began a new life
			2420,       // a queue pair of the server's new life has the number of one of the former
			4266, 4324, // a client's host that reboots with the same numbers
			2221, 4267, // retries used up
			3000011, 3000686, // an answer is lost before the second shared connection is there
		}},
		{"locks-change", []uint64{
			8,                  // a damaged request, the first one after a change of rules
			76000138, 76000144, // a flow was recorded twice, and a later program refused it
		}},
		{"locks-move", []uint64{
			304, 415,
			1493,      // five losses in a row on a shared connection, and retries of clients used up meanwhile
			193, 1381, // what a failed queue pair had on a shared connection came behind what its client did next
			1116, 583, // a part of a READ's answer is lost while the row is not in step
		}},
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
