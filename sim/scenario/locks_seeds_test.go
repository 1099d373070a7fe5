package scenario

import (
	"fmt"
	"testing"
)

// These seeds once found a defect; they find none any more.
func TestLocksThatFailedOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name  string
		seeds []uint64
	}{
		{"locks", []uint64{
			2002880, 5515, // a client sent nothing while its server began a new incarnation
			2420,       // a queue pair of the server's new incarnation has the same number as one of the former incarnation
			4266, 4324, // a client's host reboots with the same numbers
			2221, 4267, // retries are used up
			3000011, 3000686, // an answer is lost before the second shared connection exists
		}},
		{"locks-change", []uint64{
			8,                  // the first request after a change of rules is damaged
			76000138, 76000144, // a flow was in the journal twice, and the program loaded next refused it
			1300005744, // the same as in locks-move 1381, after the rule was removed
		}},
		{"locks-move", []uint64{
			1400009677, // a READ of unknown span that comes again behind a later request
			304, 415,
			1493,      // five losses in a row on a shared connection, while the retries of clients are used up
			193, 1381, // a failed queue pair's requests on a shared connection were executed after later requests of its client
			1116, 583, // a part of a READ's response is lost while the flow is not synchronised
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
