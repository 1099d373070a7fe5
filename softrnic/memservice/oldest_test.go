package memservice

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// askedQP counts how often it is asked for its state.
type askedQP struct {
	verbs.QP
	state verbs.QPState
	asked *int
}

func (q askedQP) Query() (verbs.QPAttr, error) {
	*q.asked++
	return verbs.QPAttr{State: q.state}, nil
}

// The connection to end is the oldest one of a client, or a failed one that is almost as old. To find it, a
// service with many connections asks the NIC about few of them.
func TestOldest(t *testing.T) {
	for _, c := range []struct {
		what   string
		silent int // so many connections of switches are the oldest ones
		failed int // index of a connection that has failed; -1: none has
		want   int
	}{
		{"none has failed", 0, -1, 0},
		{"switches' connections are older", 3, -1, 3},
		{"one of the next has failed", 3, 3 + candidates - 1, 3 + candidates - 1},
		{"a young one has failed", 0, candidates, 0},
		{"all are switches' connections", maxPassive, -1, 0},
	} {
		asked := 0
		s := &Server{}
		for i := range maxPassive {
			q := askedQP{state: verbs.StateRTS, asked: &asked}
			if i == c.failed {
				q.state = verbs.StateError
			}
			s.conns = append(s.conns, &Conn{QP: q, req: request{silent: i < c.silent}})
		}
		if got := s.oldest(); got != c.want || asked > candidates {
			t.Errorf("%s: connection %d after %d questions, want %d after at most %d", c.what, got, asked, c.want, candidates)
		}
	}
}
