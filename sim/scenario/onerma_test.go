package scenario

import (
	"testing"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// A seed of onerma replays event by event.
func TestOnermaReplays(t *testing.T) {
	s, err := Find("onerma")
	if err != nil {
		t.Fatal(err)
	}
	first := s.Run(3, Options{Hash: true})
	if again := s.Run(3, Options{Hash: true}); first.Err != nil || first.Hash == 0 || again.Hash != first.Hash {
		t.Errorf("%v; digests %#x and %#x", first.Err, first.Hash, again.Hash)
	}
}

// deafNIC receives nothing and never acts.
type deafNIC struct{ simnet.Node }

func (deafNIC) Frame(clock.Time, int, packetio.Frame, *packetio.Batch) {}
func (deafNIC) Deadline() clock.Time                                   { return clock.Never }

// A NIC that never ends its commands is found, with the command.
func TestOnermaFindsCommandsWithoutEnd(t *testing.T) {
	s, err := Find("onerma")
	if err != nil {
		t.Fatal(err)
	}
	r := s.Run(1, Options{Wrap: func(_ string, n simnet.Node) simnet.Node { return deafNIC{n} }})
	if r.Err == nil {
		t.Error("no failure")
	}
}
