package store

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Store describes a store. All fields are required, except those that say that they are optional.
type Store struct {
	// Name is the store's command and the value of `run ycsb --store`. Title is its name in
	// sentences.
	Name, Title string
	// Default is true if `run ycsb` without --store uses this store. Optional; at most one store
	// sets it.
	Default bool
	// Node makes the store's part of a host's daemon.
	Node func(Host) Node
	// Server returns the host whose daemon runs the store's server. Optional: nil means that the
	// store has no server and is started on every compute host.
	Server func(*rackfile.Rack) (string, error)
	// Join is how long a client may take to connect. Optional; 0 means Patience.
	Join time.Duration
	// Broken is the error of a client that cannot be used any more. Optional: nil means that the
	// store has no such error.
	Broken error
	// Cost describes the cost of a client's last operation. Optional; nil means the number of round
	// trips.
	Cost func(kv.Store) string
	// Upserts is true if clients are kv.Upserters, Scans if they are kv.Scanners, and Shares if
	// several clients of a host can share a queue pair (ClientOptions.Share). Steers is true if the
	// switch can steer the clients' requests.
	Upserts, Scans, Shares, Steers bool
	// Value is the length of values in a workload, in bytes. Optional; 0 means 100. Note follows
	// the store's name in the help of `run ycsb --store`. Optional.
	Value int
	Note  string
	// Columns names the counters that Node.Status returns and `rdmalab top` shows. Optional.
	Columns []string
	// Scenarios are the store's scenarios of `rdmalab sim`. Optional.
	Scenarios []Scenario
	Commands  Commands
}

// Patience is the default time limit of one operation, and of connecting a client.
const Patience = 5 * time.Second

// JoinPatience returns how long a client may take to connect.
func (s *Store) JoinPatience() time.Duration { return cmp.Or(s.Join, Patience) }

// StartLimit is how long `rdmalab STORE start` waits for the answer of one host. The host may open a
// client, then make the store, and so waits twice for the memory servers at most. A store's server
// may also read what is left of the store in their memory.
func (s *Store) StartLimit() time.Duration { return 2*s.JoinPatience() + time.Minute }

// Places returns the hosts on which the store is started and stopped: the host of its server or,
// without a server, all compute hosts.
func (s *Store) Places(rack *rackfile.Rack) ([]string, error) {
	if s.Server != nil {
		host, err := s.Server(rack)
		return []string{host}, err
	}
	return rack.NamesByRole(rackfile.Compute)
}

// MetadataHost returns the host that runs the server of a store that has one: the first host with
// the role metadata.
func MetadataHost(rack *rackfile.Rack) (string, error) {
	list, err := rack.NamesByRole(rackfile.Metadata)
	if err != nil {
		return "", err
	}
	return list[0], nil
}

// NotOpened adds to the error of a client that could not be opened the hint that the store may not
// have been started. It adds nothing if the memory was lost or has other data: the error itself
// says what to do.
func (s *Store) NotOpened(err error) error {
	for _, says := range []error{kv.ErrLost, passive.ErrPart, passive.ErrForeign, passive.ErrServers} {
		if errors.Is(err, says) {
			return err
		}
	}
	return fmt.Errorf("%w; %s", err, s.HowToStart())
}

// HowToStart returns a hint for a store that may not have been started: the command that starts
// it.
func (s *Store) HowToStart() string {
	return fmt.Sprintf("is the store up? `rdmalab %s start`", s.Name)
}

// HowToFit returns a hint for errors of values that are too large: how to make the store for larger
// values. It returns "" if the store cannot be made for larger values.
func (s *Store) HowToFit() string {
	fs := pflag.NewFlagSet(s.Name, pflag.ContinueOnError)
	if s.Commands.Start.New != nil {
		s.Commands.Start.New(fs)
	}
	if fs.Lookup("value") == nil || fs.Lookup("fresh") == nil {
		return ""
	}
	return fmt.Sprintf("; `rdmalab %s start --fresh --value BYTES` makes an empty one for longer values", s.Name)
}

// cost describes how the last operation of a client has used the network.
func (s *Store) cost(c kv.Store) string {
	if s.Cost != nil {
		return s.Cost(c)
	}
	return fmt.Sprintf("%d round trips", c.Last().RTTs)
}

// registered are the stores by name.
var registered = map[string]*Store{}

// Register adds a store. It is called by init functions. It panics if the description is incomplete
// or the name is taken. remove removes the store; only tests call it.
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

// All returns the registered stores, sorted by name.
func All() []*Store {
	return slices.SortedFunc(maps.Values(registered), func(a, b *Store) int { return strings.Compare(a.Name, b.Name) })
}

// Names returns the names of the stores for which want returns true; a nil want selects all.
func Names(want func(*Store) bool) (out []string) {
	for _, s := range All() {
		if want == nil || want(s) {
			out = append(out, s.Name)
		}
	}
	return out
}

// Default returns the store that `run ycsb` uses without --store. At least one store must be
// registered.
func Default() *Store {
	all := All()
	if i := slices.IndexFunc(all, func(s *Store) bool { return s.Default }); i >= 0 {
		return all[i]
	}
	return all[0]
}

func Find(name string) (*Store, error) {
	if s := registered[name]; s != nil {
		return s, nil
	}
	names := Names(nil)
	text := strings.Join(names, ", ")
	if last := len(names) - 1; last > 0 {
		text = strings.Join(names[:last], ", ") + " and " + names[last]
	}
	return nil, fmt.Errorf("store %.40q is unknown: %sthere are %s", name, nearest.Meant(name, names), text)
}
