// Package apps lists the switch programs and makes the one that a rack asks for. A program is a package of its own below
// this one; a new one is one line here.
package apps

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/record"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Config is what a rack does not say about its switch.
type Config struct {
	// Rand makes numbers of queue pairs and connections; it must differ from life to life of the switch. The program owns
	// it.
	Rand *rand.Rand
	// Record is what survives a crash of the switch; nil: nothing does.
	Record *record.Record
	// Late says that the program comes when connections may be open already, though no former life of the switch has left a record.
	Late bool
	// Silence is for how long the switch asks a silent server before it gives it up; 0: 255 ms.
	Silence time.Duration
	// Hold is for how long an append that is steered waits for the one before it; 0: 1 ms.
	Hold time.Duration
	// Nodes is how many nodes of stores a switch that steers remembers; 0: 65536. Clients whose nodes are forgotten are not led.
	Nodes int
}

// programs makes them by name.
var programs = map[string]func(s *spec.Rack, cfg Config) (pipeline.Program, error){
	spec.ProgramForward:  func(*spec.Rack, Config) (pipeline.Program, error) { return forward.Program{}, nil },
	spec.ProgramSwordBox: swordBox,
}

// New makes the program of a rack's switch; "" is forward.
func New(s *spec.Rack, cfg Config) (pipeline.Program, error) {
	name := s.Switch.Program
	if name == "" {
		name = spec.ProgramForward
	}
	program, ok := programs[name]
	if !ok {
		return nil, fmt.Errorf("switch program %q is unknown; there is %s", name, strings.Join(spec.Programs(), ", "))
	}
	return program(s, cfg)
}

// Self are the addresses under which the switch of a rack is reached: those of the rack file if its program ends
// connections, otherwise none.
func Self(s *spec.Rack) pipeline.Self {
	if s.Switch.Program != spec.ProgramSwordBox {
		return pipeline.Self{}
	}
	self := pipeline.Self{MAC: s.Switch.MAC}
	for _, a := range []netip.Addr{s.Switch.IPv4, s.Switch.IPv6} {
		if a.IsValid() {
			self.Addrs = append(self.Addrs, a)
		}
	}
	return self
}
