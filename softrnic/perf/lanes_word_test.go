package perf

import (
	"math"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func TestLanesAreAWord(t *testing.T) {
	for _, want := range []lanes{{ConnRC, 1, true}, {ConnUC, MaxQPs, false}, {ConnUD, 7, true}} {
		if got, err := parseLanes(want.String()); err != nil || got != want {
			t.Errorf("%v became %v, %v", want, got, err)
		}
	}
	for _, s := range []string{"", "rc", "rc0", "rc65", "xx1", "rc1x", "rc-1", "uc1ss", "ud99999999999999999999"} {
		if l, err := parseLanes(s); err == nil {
			t.Errorf("%q is %v", s, l)
		}
	}
}

func TestLaneEndsArePacked(t *testing.T) {
	for _, want := range []laneEnd{{1, 2, verbs.MTU256}, {0xffffff, 0xffffff, verbs.MTU4096}} {
		if got := unpackLane(want.pack()); got != want {
			t.Errorf("%+v became %+v", want, got)
		}
	}
}

// The longest request over lanes fits.
func TestLanesFitARequest(t *testing.T) {
	for _, test := range []string{SendBW, SendLat} {
		c := Config{Test: test, Conn: ConnUD, SRQ: true, Size: 65536, Depth: MaxDepth, RecvSlack: MaxDepth, Iters: MaxIters, Seed: math.MaxUint64, Verify: true}
		if test == SendBW {
			c.QPs = MaxQPs
		}
		c = c.withDefaults()
		p := plans[test](&c)
		h, err := parseHello(p.hello.encode())
		if err != nil || h != p.hello {
			t.Errorf("%+v became %+v: %v", p.hello, h, err)
		}
	}
}
