// Package apps holds the registries of the switch: its programs, and the handlers of the rules of
// program swordbox. ARCHITECTURE.md says what else a new program or action needs.
package apps

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	publishedsteer "github.com/rdmalab/rdmalab/swordbox/published/cloversteer"
	publishedserialize "github.com/rdmalab/rdmalab/swordbox/published/serialize"
	publishedstate "github.com/rdmalab/rdmalab/swordbox/published/statestore"
	"github.com/rdmalab/rdmalab/swordbox/rules"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// handlers carry out the rules of programs that have rules.
var handlers = []*handler.Kind{
	&serialize.Kind,
	&publishedserialize.Kind,
	&cloversteer.Kind,
	&publishedsteer.Kind,
	&hotwords.Kind,
	&statestore.Kind,
	&publishedstate.Kind,
}

// programs lists the programs that a rack file can name.
var programs = []Program{
	{Name: spec.ProgramForward, make: func(*spec.Rack, Config) (pipeline.Program, error) { return forward.Program{}, nil }},
	{Name: spec.ProgramSwordBox, HasRules: true, make: swordBox, requests: swordbox.Requests},
}

// Program is an entry of the registry of programs.
type Program struct {
	Name string
	// HasRules: the program implements Ruled. The switch then has addresses and a journal.
	HasRules bool

	make     func(s *spec.Rack, cfg Config) (pipeline.Program, error)
	requests func() []handler.Request
}

// Ruled is a program with rules.
type Ruled interface {
	pipeline.Program
	// Rules returns the rules in force. SetRules replaces them, also in the journal; on error they
	// stay as they are.
	Rules() *rules.Set
	SetRules(s *rules.Set) error
	// Tables lists the tables of the program. ClearTable empties the table with a name and returns
	// how many entries it had; ok is false if no table with this name can be cleared.
	Tables(now clock.Time) []handler.Table
	ClearTable(name string) (int, bool)
	// Bound counts the flows that would break if the program were replaced now. To replace the
	// program, the switch calls Close, which ends its connections, loads the other program, and
	// then calls Unloaded.
	Bound() int
	Close(c *pipeline.Ctx)
	Unloaded()
}

var _ Ruled = (*swordbox.Program)(nil)

// Config holds the settings of a program that a rack's description does not contain.
type Config struct {
	// Rand makes queue pair numbers and PSNs; it must differ between incarnations of the switch.
	// The program owns it.
	Rand *rand.Rand
	// Journal is the journal, which survives a crash of the switch; nil: nothing survives.
	Journal *journal.Journal
	// Late: the program may start when connections are open already, although no earlier
	// incarnation of the switch has left a journal.
	Late bool
	// Silence is how long the switch retransmits requests to a server that does not answer before
	// it gives the server up; 0: 255 ms.
	Silence time.Duration
	// Hold is how long the switch holds an append that waits for the previous append to the same
	// key; 0: 1 ms.
	Hold time.Duration
	// Nodes is how many nodes of Clover stores a switch that steers remembers; 0: 65536. The switch
	// does not steer requests for nodes that it has forgotten.
	Nodes int
	// Connections is how many connections the switch tracks; 0: the default of conntrack.
	Connections int
}

// Lookup finds a program by name; "" is forward. false: there is none.
func Lookup(name string) (Program, bool) {
	if name == "" {
		name = spec.ProgramForward
	}
	i := slices.IndexFunc(programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return Program{}, false
	}
	return programs[i], true
}

// New makes the program of a rack's switch; "" is forward.
func New(s *spec.Rack, cfg Config) (pipeline.Program, error) {
	p, ok := Lookup(s.Switch.Program)
	if !ok {
		return nil, fmt.Errorf("switch program %q is unknown; there is %s", s.Switch.Program, strings.Join(spec.Programs(), ", "))
	}
	return p.make(s, cfg)
}

// Requests lists the control requests of all programs. A switch answers those of programs that it
// does not run with handler.ErrNoRules.
func Requests() (list []handler.Request) {
	for _, p := range programs {
		if p.requests != nil {
			list = append(list, p.requests()...)
		}
	}
	return list
}

// Listings lists what the handlers can show an operator.
func Listings() (list []handler.Listing) {
	for _, k := range handlers {
		list = append(list, k.Listings...)
	}
	return list
}

// Self returns the addresses under which the rack's switch makes connections: those of the rack
// file if its program has rules, otherwise none.
func Self(s *spec.Rack) pipeline.Self {
	if p, ok := Lookup(s.Switch.Program); !ok || !p.HasRules {
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
