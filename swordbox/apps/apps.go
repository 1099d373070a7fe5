// Package apps holds the registries of the switch: its programs, and the handlers of the rules of
// program swordbox. ARCHITECTURE.md says what a new program or action needs in addition.
package apps

import (
	"cmp"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/apps/forward"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
	"github.com/rdmalab/rdmalab/swordbox/netcache"
	"github.com/rdmalab/rdmalab/swordbox/packetbuffer"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	publishedsteer "github.com/rdmalab/rdmalab/swordbox/published/cloversteer"
	publishedlookup "github.com/rdmalab/rdmalab/swordbox/published/lookuptable"
	publishedbuffer "github.com/rdmalab/rdmalab/swordbox/published/packetbuffer"
	publishedserialize "github.com/rdmalab/rdmalab/swordbox/published/serialize"
	publishedstate "github.com/rdmalab/rdmalab/swordbox/published/statestore"
	"github.com/rdmalab/rdmalab/swordbox/serialize"
	"github.com/rdmalab/rdmalab/swordbox/statestore"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/swordbox/tracestore"
)

// handlers lists the handlers, which carry out the rules of programs with rules.
var handlers = []*handler.Kind{
	&serialize.Kind,
	&publishedserialize.Kind,
	&cloversteer.Kind,
	&publishedsteer.Kind,
	&hotwords.Kind,
	&statestore.Kind,
	&publishedstate.Kind,
	&packetbuffer.Kind,
	&publishedbuffer.Kind,
	&netcache.Kind, // before lookuptable, which may take answers of a cached server
	&lookuptable.Kind,
	&publishedlookup.Kind,
	&tracestore.Kind,
}

// programs lists the programs that a rack file can name.
var programs = []Program{
	{Name: rackfile.ProgramForward, New: func(*rackfile.Rack, Config) (pipeline.Program, error) { return forward.Program{}, nil }},
	{Name: rackfile.ProgramSwordBox, HasRules: true, New: swordBox, requests: swordbox.Requests},
}

// Program is an entry of the registry of programs. Another module registers one with Register.
type Program struct {
	// Name is what rack files and `rdmalab switch program` call the program. The Spec of the program
	// must have the same name.
	Name string
	// HasRules is true if the program implements Ruled. A switch that runs it has addresses (see
	// Self) and a journal.
	HasRules bool

	// New makes a program with empty tables for the switch of rack s. It is called for each
	// incarnation of the switch, on racks and in the simulator.
	New func(s *rackfile.Rack, cfg Config) (pipeline.Program, error)

	requests func() []handler.Request
}

// Ruled is a program with rules.
type Ruled interface {
	pipeline.Program
	// Rules returns the rules in force. SetRules replaces them, also in the journal. If SetRules
	// returns an error, the rules in force stay as they are.
	Rules() *rules.Set
	SetRules(s *rules.Set) error
	// Tables lists the tables of the program. ClearTable empties the table with a name and returns
	// how many entries it had. The bool is false if no table of this name can be cleared.
	Tables(now clock.Time) []handler.Table
	ClearTable(name string) (int, bool)
	// Bound returns how many flows would break if the program were replaced now. To replace the
	// program by another one, the switch calls Close, which ends the program's connections, then
	// loads the other program, and then calls Unloaded.
	Bound() int
	Close(c *pipeline.Ctx)
	Unloaded()
}

var (
	_ Ruled            = (*swordbox.Program)(nil)
	_ handler.Counting = (*swordbox.Program)(nil)
)

// Config holds the settings of a program that are not part of a rack's description.
type Config struct {
	// Rand is the source of queue pair numbers and PSNs. Its values must differ between
	// incarnations of the switch. The program owns it.
	Rand *rand.Rand
	// Journal is the switch's journal, which survives a crash of the switch; nil means that nothing
	// survives.
	Journal *journal.Journal
	// Late is true if connections may be open when the program starts, although no earlier
	// incarnation of the switch has left a journal.
	Late bool
	// Silence is how long the switch retransmits requests to a server that does not answer. After
	// that it gives up the connection. 0 means 255 ms.
	Silence time.Duration
	// Hold is how long the switch holds an append while the previous append to the same key is in
	// flight; 0 means 1 ms.
	Hold time.Duration
	// Nodes is how many nodes of Clover stores the switch remembers when it steers (sends requests
	// to the newest node of their key); 0 means 65536. It does not steer requests for nodes that it
	// has forgotten.
	Nodes int
	// Where is how the program sees the hosts; nil means those of the rack, at the ports of their
	// places. The program reads it when it handles packets.
	Where *Where
	// Connections is how many connections the switch tracks; 0 means the default of conntrack.
	Connections int
}

// SteeredNodes is Config.Nodes of the switch's daemon, and of estimates of what the program takes
// on a chip. That many nodes take 22 MiB, which the switch allocates when it learns the first
// store. The published handler remembers the same number. The table must hold many nodes, because a
// client may name an old node of a chain to which many nodes have been appended since.
const SteeredNodes = 1 << 18

// Lookup finds a program by name; "" is forward. The bool is false if there is none.
func Lookup(name string) (Program, bool) {
	name = cmp.Or(name, rackfile.ProgramForward)
	i := slices.IndexFunc(programs, func(p Program) bool { return p.Name == name })
	if i < 0 {
		return Program{}, false
	}
	return programs[i], true
}

// New makes the program that the rack file names for the switch; "" is forward.
func New(s *rackfile.Rack, cfg Config) (pipeline.Program, error) {
	p, ok := Lookup(s.Switch.Program)
	if !ok {
		return nil, fmt.Errorf("switch program %.40q is unknown; %sthere is %s", s.Switch.Program, nearest.Meant(s.Switch.Program, rackfile.Programs()), strings.Join(rackfile.Programs(), ", "))
	}
	return p.New(s, cfg)
}

// Register adds a program of another module, so that rack files and `rdmalab switch program` can name
// it. Init functions call it. It panics if p has no name or no function New, or if the name is taken.
// The program gets no rules (Program.HasRules is ignored). If it implements handler.Counting, `rdmalab
// switch counters` shows its counters. remove removes the program; only tests call it.
func Register(p Program) (remove func()) {
	if p.New == nil {
		panic(fmt.Sprintf("switch program %q has no function New", p.Name))
	}
	forget := rackfile.AddProgram(p.Name)
	programs = append(programs, Program{Name: p.Name, New: p.New})
	return func() {
		forget()
		programs = slices.DeleteFunc(programs, func(o Program) bool { return o.Name == p.Name })
	}
}

// RegisterHandler adds a handler of another module, which carries out rules of the program swordbox:
// those of an action that the module has registered with rules.Register, or of a rule that the
// handler selects. Init functions call it. It panics if the name of the kind is taken. remove removes
// the handler; only tests call it.
func RegisterHandler(k *handler.Kind) (remove func()) {
	if k.New == nil || slices.ContainsFunc(handlers, func(o *handler.Kind) bool { return o.Name == k.Name }) {
		panic(fmt.Sprintf("handler %q: the name is taken, or there is no function New", k.Name))
	}
	handlers = append(handlers, k)
	return func() { handlers = slices.DeleteFunc(handlers, func(o *handler.Kind) bool { return o == k }) }
}

// counters is the control request for the counters of any program that has some.
var counters = handler.Request{
	Pattern: "GET /program/counters", Doc: "what the parts of the program counted",
	Do: func(p pipeline.Program, c *handler.Call) (any, error) {
		if p, ok := p.(handler.Counting); ok {
			return p.Counters(c.Now), nil
		}
		if name := p.Spec().Name; name != rackfile.ProgramForward {
			return nil, handler.WithKind(handler.ErrNoRules, fmt.Errorf("program %s has no counters", name))
		}
		return nil, handler.ErrNoRules
	},
}

// Requests lists the control requests of all programs. If the switch does not run the program of a
// request, it answers with handler.ErrNoRules.
func Requests() (list []handler.Request) {
	list = append(list, counters)
	for _, p := range programs {
		if p.requests != nil {
			list = append(list, p.requests()...)
		}
	}
	return list
}

func Listings() (list []handler.Listing) {
	for _, k := range handlers {
		for _, l := range k.Listings {
			// The published and the hardened handler of an action have the same listings.
			if !slices.ContainsFunc(list, func(o handler.Listing) bool { return o.Name == l.Name }) {
				list = append(list, l)
			}
		}
	}
	return list
}

// Self returns the addresses with which the rack's switch makes connections: those of the rack file
// or, if the switch's program has no rules, none.
func Self(s *rackfile.Rack) pipeline.Self {
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

// swordBox makes the program swordbox. It takes the rules from the journal of the former
// incarnation of the switch, because an operator may have changed them. If there was no former
// incarnation, it takes them from the rack file.
func swordBox(s *rackfile.Rack, cfg Config) (pipeline.Program, error) {
	if cfg.Rand == nil {
		return nil, errors.New("the program swordbox needs a source of random numbers")
	}
	if cfg.Where == nil {
		cfg.Where = &Where{Rack: s}
	}
	set, ok, err := swordbox.StoredRules(cfg.Journal)
	if err == nil && !ok {
		set, err = rules.NewSet(s.Switch.Rules)
	}
	if err != nil {
		return nil, err
	}
	d, err := switchconn.New(switchconn.Config{
		MAC: s.Switch.MAC, IPv4: s.Switch.IPv4, IPv6: s.Switch.IPv6, Resolve: cfg.Where.neighbour, LinkMTU: s.LinkMTU,
		Rand: cfg.Rand, Journal: cfg.Journal,
	})
	if err != nil {
		return nil, err
	}
	track := conntrack.Config{Seed: cfg.Rand.Uint64(), Connections: cfg.Connections, Trunks: cfg.Where.Trunks}
	if !ok && !cfg.Late {
		track.Settle = -1 // the switch starts before its hosts, so every connection begins later
	}
	own := swordbox.NewOwn(d, cfg.Journal)
	env := handler.Env{
		Moving: own.Moving, Answered: own.Answered, Failed: own.Failed, Missing: d.Missing, Silence: cfg.Silence, Hold: cfg.Hold, Nodes: cfg.Nodes,
		Port: cfg.Where.portOf, MAC: cfg.Where.neighbour, Slowing: cfg.Where.slowing, Late: ok || cfg.Late, Behind: cfg.Journal.SetBehind, FormerlyBehind: cfg.Journal.FormerlyBehind,
	}
	all := make([]handler.Handler, len(handlers))
	for i, k := range handlers {
		all[i] = k.New(&env)
	}
	p := swordbox.New(swordbox.Config{Rules: set, Own: own, Track: track, Handlers: all})
	cfg.Where.bind(p)
	if !ok {
		err = p.SetRules(set) // stored rules tell the next incarnation that there was a former one
	}
	return p, err
}
