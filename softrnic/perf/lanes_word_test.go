package perf

import (
	"math"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func TestLaneEndsArePacked(t *testing.T) {
	for _, want := range []laneEnd{{1, 2, verbs.MTU256}, {0xffffff, 0xffffff, verbs.MTU4096}} {
		if got := unpackLane(want.pack()); got != want {
			t.Errorf("%+v became %+v", want, got)
		}
	}
}

// The largest request over lanes is in bounds.
func TestLanesFitARequest(t *testing.T) {
	for _, test := range []string{SendBW, SendLat} {
		c := Config{Test: test, Queues: Queues{Conn: ConnUD, SRQ: true}, Size: 65536, Depth: MaxDepth, RecvSlack: MaxDepth, Iters: MaxIters, Seed: math.MaxUint64, Verify: true}
		if test == SendBW {
			c.QPs = MaxQPs
		}
		c = c.withDefaults()
		p := plans[test](&c)
		w, err := parseRequest(p.request.encode())
		if err != nil || w != p.request {
			t.Errorf("%+v became %+v: %v", p.request, w, err)
		}
	}
}
