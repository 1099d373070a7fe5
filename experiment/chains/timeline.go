package chains

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A timeline says what percentage of a client's GETs is answered in each of Steps steps of length
// Step. Meanwhile the server's process dies, at the end of step number Death, and is started again.
// The first step is number 1.
const (
	Step         = 250 * time.Millisecond
	Steps, Death = 20, 4
	// getEvery is the least time from the beginning of a GET to that of the next one.
	getEvery = time.Millisecond
)

// Timeline calls the function `get` again and again for all steps, from the time `begin` on. It
// returns for each step the percentage of its calls that had an answer. get returns false if there
// was no answer until its deadline, which is `patience` after the call.
func Timeline(rt verbs.Runtime, begin clock.Time, patience time.Duration, get func(i int, deadline clock.Time) (bool, error)) ([]float64, error) {
	shares := make([]float64, Steps)
	for step := range shares {
		end := begin.Add(time.Duration(step+1) * Step)
		answered, begun := 0, 0
		for ; rt.Now() < end; begun++ {
			next := rt.Now().Add(getEvery)
			ok, err := get(begun, rt.Now().Add(patience))
			if err != nil {
				return nil, err
			}
			if ok {
				answered++
			}
			if now := rt.Now(); now < next {
				rt.Sleep(next.Sub(now))
			}
		}
		shares[step] = 100 * float64(answered) / float64(max(1, begun))
	}
	return shares, nil
}
