package trunk

import (
	"testing"
	"time"
)

// The ends find the longest datagrams that a path takes, also when it changes.
func TestPathMTU(t *testing.T) {
	for _, c := range []struct{ own, path, want int }{
		{1500, 1500, 1500}, {9000, 9000, 9000}, {65536, 65536, 9000}, {9000, 1500, 1500}, {1500, 1420, 1400}, {1500, 1279, 1024}, {1500, 700, 576}, {1300, 1500, 1300},
	} {
		r := newRig(t)
		path := c.path
		r.fate = func(_ int, d []byte) (int, int) {
			if len(d)+28 > path {
				return 0, 0
			}
			return 1, 0
		}
		for side := range 2 {
			cfg := config(Side(side))
			cfg.MTU = c.own
			r.start(side, cfg)
		}
		r.run(4 * time.Second)
		if m := r.ends[0].mtu.good; m != c.want || !r.carries() {
			t.Errorf("%+v: found %d", c, m)
		}
		path = min(path, 1300)
		r.run(5 * time.Second)
		if m := r.ends[0].mtu.good; m > path || !r.carries() {
			t.Errorf("%+v: the path has become shorter, and the end still takes %d", c, m)
		}
		path = c.path
		r.run(raiseMTU + time.Second)
		if m := r.ends[0].mtu.good; m < c.want || !r.carries() {
			t.Errorf("%+v: the path has become longer again, and the end takes %d", c, m)
		}
	}
}

// What the kernel says of the path counts at once.
func TestKernelKnowsThePath(t *testing.T) {
	r := newRig(t)
	r.up()
	r.ends[0].TooBig(r.now, 1300)
	if m := r.ends[0].mtu.good; m != 1300 {
		t.Errorf("the end takes %d", m)
	}
	r.run(time.Second)
	if m := r.ends[0].mtu.good; m != 1300 || !r.carries() {
		t.Errorf("the end takes %d afterwards", m)
	}
	r.run(raiseMTU + time.Second)
	if m := r.ends[0].mtu.good; m != 1500 || !r.carries() {
		t.Errorf("the path has become longer again, and the end takes %d", m)
	}
}
