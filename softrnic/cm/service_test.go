package cm

import (
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Ports are RDMA-CM's service IDs. Service IDs of names are administered by the local system
// (A3.2.3.1), and differ between datagrams and connections.
func TestServiceNumbers(t *testing.T) {
	if s := ServiceOf("7174"); !s.Port || s.ID != mad.PortService(mad.SpaceTCP, 7174) {
		t.Errorf("a port is %v", s)
	}
	if s := DatagramServiceOf("7174"); !s.Port || s.ID != mad.PortService(mad.SpaceUDP, 7174) {
		t.Errorf("a port of datagrams is %v", s)
	}
	seen := map[mad.ServiceID]string{}
	for _, name := range []string{"a", "b", "07174", "65536", "0", "-1", "a name"} {
		for kind, s := range map[string]Service{"connections": ServiceOf(name), "datagrams": DatagramServiceOf(name).Service} {
			if s.Port || s.ID>>56 != 2 {
				t.Errorf("%s of %q: %v", kind, name, s)
			}
			if other, ok := seen[s.ID]; ok {
				t.Errorf("%s of %q have the number of %s", kind, name, other)
			}
			seen[s.ID] = kind + " of " + name
		}
	}
}
