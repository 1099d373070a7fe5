package rack

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/guests"
)

// A guest gets a name, an address and a MAC address that no other guest has. A request for those of
// another guest is refused with the name of that guest.
func TestNewGuest(t *testing.T) {
	s, err := rackfile.Parse([]byte("name: lab\nhosts:\n  - {name: ms0, role: memory}\n  - {name: cn0, role: compute}\n"))
	if err != nil {
		t.Fatal(err)
	}
	r := &Rack{Spec: s, Paths: rackfile.Paths{Dir: t.TempDir()}}
	add := func(q GuestRequest) (guests.Guest, error) {
		q.Network, q.Ifname = "n", "eth0"
		g, err := r.Guests().make(&q)
		if err != nil {
			return g, err
		}
		return g, guests.Write(r.Paths, &g)
	}
	// The first guest asks for the MAC address that belongs to the IP address of the next guest.
	next, err := s.NewGuest("x", "p", 1)
	if err != nil {
		t.Fatal(err)
	}
	first, err := add(GuestRequest{Name: "web", Container: "a", MAC: next.MAC})
	if err != nil || first.MAC != next.MAC || first.Name != "web" {
		t.Fatalf("%+v, %v", first, err)
	}
	second, err := add(GuestRequest{Suggested: "web", Container: "b"})
	if err != nil || second.MAC == first.MAC || second.IPv4 == first.IPv4 || second.Name == "web" {
		t.Errorf("%+v, %v", second, err)
	}
	for what, q := range map[string]GuestRequest{
		"switch": {MAC: s.Switch.MAC}, "cn0": {MAC: s.Hosts[1].MAC}, "web": {MAC: first.MAC}, second.Name: {Name: second.Name}, "ms0": {Name: "ms0"},
	} {
		q.Container = "c"
		if g, err := add(q); !errors.Is(err, ErrGuest) || !strings.Contains(err.Error(), what) {
			t.Errorf("what %s has was given to %+v, %v", what, g, err)
		}
	}
	if _, err := add(GuestRequest{Container: "a"}); !errors.Is(err, ErrAttached) {
		t.Errorf("a second time: %v", err)
	}
	if g, err := add(GuestRequest{Container: "c", MAC: wire.MAC{2, 0, 0, 0, 0, 1}}); err != nil || g.MAC != (wire.MAC{2, 0, 0, 0, 0, 1}) {
		t.Errorf("%+v, %v", g, err)
	}
}
