package meta

import (
	"testing"

	"github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A client gets nodes of the server that it names while that has some, and nodes of others after
// that. One that names none gets nodes of all servers in turn.
func TestNodesOfAServer(t *testing.T) {
	s, _ := lossy()
	s.pool.noSegments()
	s.pool.clients = map[uint32]*client{1: {id: 1}}
	for i := range s.mem.memory {
		for k := range 4 {
			s.pool.release(layout.Location{Handle: s.mem.space.First(i, 0) + layout.Handle(k), Version: 1})
		}
	}
	servers := func(near, n int) (list []int) {
		var a rpc.Answer
		s.alloc(s.pool.clients[1], &rpc.Request{Op: rpc.OpAlloc, N: n, Near: near}, &a)
		for _, l := range a.Locations[:a.N] {
			p, _ := s.mem.space.Place(l.Handle)
			list = append(list, p.Server)
		}
		return list
	}
	for i, c := range []struct {
		near, n int
		want    []int
	}{
		{2, 2, []int{1, 1}}, // a quarter of eight
		{0, 2, []int{0}},
		{2, 3, []int{1}},
		{2, 1, []int{1}},
		{2, 2, []int{0}}, // no node of this server is left
		{99, 2, []int{0}},
	} {
		got := servers(c.near, c.n)
		if len(got) != len(c.want) {
			t.Fatalf("request %d: servers %v, want %v", i, got, c.want)
		}
		for k := range got {
			if got[k] != c.want[k] {
				t.Errorf("request %d: servers %v, want %v", i, got, c.want)
			}
		}
	}
}

// A superseded node with a low version is reused in the version of the nodes that are used most
// often, unless it has begun again with version 1.
func TestVersionsKeepPace(t *testing.T) {
	f := new(free)
	for i, c := range []struct{ v, want layout.Version }{{2, 2}, {7, 7}, {3, 7}, {7, 7}, {8, 8}, {250, 250}, {8, 8}, {250, 250}, {186, 250}, {185, 185}} {
		if got := f.pace(c.v); got != c.want {
			t.Errorf("node %d: version %d, want %d", i, got, c.want)
		}
	}
}
