package meta

import (
	"net/netip"
	"testing"

	"github.com/rdmalab/rdmalab/clover/rpc"
)

// A client whose lease has ended says hello again. It keeps the number of its connections if no server
// has begun to end them. If one has, its connections under that number would end at any time, and a
// request on one of them would be answered never.
func TestLateFence(t *testing.T) {
	const had = 5
	for _, c := range []struct {
		name  string
		begun bool
		done  bool // at one server
	}{{"waits", false, false}, {"has begun", true, false}, {"is done at one server", false, true}} {
		s, _ := lossy()
		x, other := &fence{owner: had, open: 2}, &fence{owner: 4, open: 2}
		s.fences = fencer{servers: make([]netip.Addr, 2), due: [][]*fence{{other, x}, {other, x}}}
		if c.begun {
			s.fences.due[1] = s.fences.due[1][1:]
		}
		if c.done {
			x.open, s.fences.due[0] = 1, s.fences.due[0][:1]
		}
		s.clients = map[uint32]*client{had: {id: had, owner: had, ended: true, fence: x}}
		s.nextID, s.endID = had, 1000
		r := rpc.Request{Op: rpc.OpHello, Seq: 4, Client: had, Owner: had, Quiet: true}
		s.renumber(&r)
		keeps := s.ownerOf(had+1, &r) == had
		if late := c.begun || c.done; keeps == late || x.cancelled == late {
			t.Errorf("the fence %s: the client keeps its number: %v; cancelled: %v", c.name, keeps, x.cancelled)
		}
	}
}
