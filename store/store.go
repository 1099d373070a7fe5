package store

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Store describes a store. Fields that are not marked as optional are required.
type Store struct {
	// Name is the store's command and the value of `run ycsb --store`; Title is its name in a
	// sentence.
	Name, Title string
	// Default marks the store that `run ycsb` uses without --store. Optional; at most one store
	// sets it.
	Default bool
	// Node makes the store's part of the daemon of a host.
	Node func(Host) Node
	// Server names the host whose daemon runs the store's server. Optional: without it the store
	// has no server, and is started on every compute host.
	Server func(*spec.Rack) (string, error)
	// Join is how long one client may take to connect. Optional; 0 is Patience.
	Join time.Duration
	// Broken is an error after which a client cannot continue a history. Optional.
	Broken error
	// Cost says what the last operation of a client took, in words. Optional; nil counts round
	// trips.
	Cost func(kv.Store) string
	// Upserts and Scans say that clients are an Upserter and a kv.Scanner, Shares that several
	// clients of a host can share a queue pair (ClientOptions.Share).
	Upserts, Scans, Shares bool
	// Value is the size of values in a workload, in bytes. Optional; 0 is 100. Note follows the
	// name in the help of `run ycsb --store`; it is optional, too.
	Value int
	Note  string
	// Columns names the counts that Node.Status returns and `rdmalab top` shows. Optional.
	Columns []string
	// Scenarios are the store's scenarios of `rdmalab sim`. Optional.
	Scenarios []Scenario
	Commands  Commands
}

// Patience is the default time limit of one operation, and of a client's connection set-up.
const Patience = 5 * time.Second

// JoinPatience is how long a client may take to connect.
func (s *Store) JoinPatience() time.Duration { return cmp.Or(s.Join, Patience) }

// Places are the hosts on which the store is started and stopped: the host of its server, or all
// compute hosts if it has no server.
func (s *Store) Places(rack *spec.Rack) ([]string, error) {
	if s.Server != nil {
		host, err := s.Server(rack)
		return []string{host}, err
	}
	var out []string
	for _, h := range rack.ByRole(spec.Compute) {
		out = append(out, h.Name)
	}
	if len(out) == 0 {
		return nil, fmt.Errorf("rack %s has no compute host: give one `role: compute` in the rack file", rack.Name)
	}
	return out, nil
}

// HowToStart returns the hint for errors that may be due to a store that does not run.
func (s *Store) HowToStart() string {
	return fmt.Sprintf("is the store up? `rdmalab %s start`", s.Name)
}

// cost says in words what the last operation of a client cost on the network.
func (s *Store) cost(c kv.Store) string {
	if s.Cost != nil {
		return s.Cost(c)
	}
	return fmt.Sprintf("%d round trips", c.Last().RTTs)
}

// registered are the stores by name.
var registered = map[string]*Store{}

// Register adds a store. It is called by init functions and panics if the description is incomplete
// or the name is taken. remove takes the store out again; only tests need it.
func Register(s Store) (remove func()) {
	switch {
	case s.Name == "" || s.Title == "" || s.Node == nil:
		panic(fmt.Sprintf("store %q lacks its name, title or node", s.Name))
	case registered[s.Name] != nil:
		panic(fmt.Sprintf("store %q is registered twice", s.Name))
	case s.Default && len(registered) > 0 && Default().Default:
		panic(fmt.Sprintf("stores %q and %q are both the default", s.Name, Default().Name))
	}
	s.complete()
	registered[s.Name] = &s
	return func() { delete(registered, s.Name) }
}

// All lists the stores that are registered, by name.
func All() []*Store {
	out := make([]*Store, 0, len(registered))
	for _, s := range registered {
		out = append(out, s)
	}
	slices.SortFunc(out, func(a, b *Store) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// Names lists the names of the stores that want selects; a nil want selects all.
func Names(want func(*Store) bool) (out []string) {
	for _, s := range All() {
		if want == nil || want(s) {
			out = append(out, s.Name)
		}
	}
	return out
}

// Default is the store of `run ycsb` without --store. At least one store must be registered.
func Default() *Store {
	all := All()
	if i := slices.IndexFunc(all, func(s *Store) bool { return s.Default }); i >= 0 {
		return all[i]
	}
	return all[0]
}

// Find returns a store by name.
func Find(name string) (*Store, error) {
	if s := registered[name]; s != nil {
		return s, nil
	}
	names := Names(nil)
	text := strings.Join(names, ", ")
	if last := len(names) - 1; last > 0 {
		text = strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return nil, fmt.Errorf("store %q is unknown: there are %s", name, text)
}
