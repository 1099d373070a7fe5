package clover

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// A client appends a node of the server that has the chain of the key. If it has none, it asks for
// more of that server, unless it has more than a batch of other servers' nodes.
func TestChooseNodeAtHome(t *testing.T) {
	c := (&finder{session: &session{cfg: Config{Batch: 4}}}).client().appender
	c.session.space = layout.Space{Servers: 2, Shortcuts: 4, Entries: layout.Counts{16}}
	on := func(servers ...int) (list []layout.Location) {
		for k, i := range servers {
			list = append(list, layout.Location{Handle: c.session.space.First(i, 0) + layout.Handle(k), Version: 1})
		}
		return list
	}
	for _, w := range []struct {
		near  int
		spare []layout.Location
		want  int
	}{
		{0, nil, -1},
		{1, nil, -1},
		{0, on(1, 0), 0},
		{1, on(1, 0), 1},
		{2, on(1, 0), 0},
		{1, on(1, 1, 1), -1},
		{1, on(1, 1, 1, 1), -1},
		{1, on(1, 1, 1, 1, 1, 1, 1, 1), -1},
		{1, on(1, 1, 1, 1, 1, 1, 1, 1, 1), 0},
		{1, on(1, 1, 1, 1, 0), 4},
	} {
		if got := c.choose(w.near, w.spare); got != w.want {
			t.Errorf("home %d, spare %v: %d, want %d", w.near, w.spare, got, w.want)
		}
	}
	c.session.cfg.Batch = 16
	for servers, want := range map[int]int{1: 16, 2: 8, 4: 8, 8: 8, 64: 8} {
		if c.session.space.Servers = servers; c.session.batch() != want {
			t.Errorf("%d servers: a batch of %d, want %d", servers, c.session.batch(), want)
		}
	}
}
