package meta

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// The highest view says which servers are out. If superblocks of one view differ, because an attempt
// to write it has failed, a server is out if any of them says so, in whatever order they are read.
func TestTheHighestViewCounts(t *testing.T) {
	type seen struct {
		view uint32
		out  uint16
	}
	for _, c := range []struct {
		seen []seen
		want []bool
	}{
		{[]seen{{0, 0}, {0, 0}}, []bool{false, false, false}},
		{[]seen{{1, 2}, {0, 0}}, []bool{false, true, false}},
		{[]seen{{0, 0}, {1, 2}}, []bool{false, true, false}},
		{[]seen{{1, 2}, {2, 4}}, []bool{false, false, true}},
		{[]seen{{2, 4}, {2, 0}}, []bool{false, false, true}},
		{[]seen{{2, 0}, {2, 4}}, []bool{false, false, true}},
	} {
		s := memories{memory: make([]memory, 3)}
		for _, x := range c.seen {
			s.see(&layout.Superblock{View: x.view, Out: x.out, Space: layout.Space{Servers: 3, Backups: 1}})
		}
		if got := s.memory.away(); !slices.Equal(got, c.want) {
			t.Errorf("%v: %v are out, want %v", c.seen, got, c.want)
		}
	}
}
