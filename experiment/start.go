package experiment

import (
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/pflag"
)

// CloverStart holds the flags of the store's start command that a load sets. The zero value stands
// for the defaults.
type CloverStart struct {
	// Threads is the number of threads of the metadata server; 0 means the platform's default. In
	// the simulator, there are only the times of these threads: in the cost model, each request
	// occupies one of them.
	Threads int
	// Replicas is how many copies each node has, on as many memory servers; 0 means 1. Balance
	// places nodes by the room and the speed of the memory servers.
	Replicas int
	Balance  bool
}

const (
	// maxReplicas is the largest number of copies of a node.
	maxReplicas = 3
	// simThreads and rackThreads are the largest numbers of threads of the metadata server: of its
	// cost model in the simulator, and of its process on a rack (meta.MaxThreads).
	simThreads  = 64
	rackThreads = 16
)

// Args returns the flags for the start command, separated by spaces.
func (s *CloverStart) Args() string {
	var list []string
	if s.Threads != 0 {
		list = append(list, fmt.Sprintf("threads=%d", s.Threads))
	}
	if s.Replicas != 0 {
		list = append(list, fmt.Sprintf("replicas=%d", s.Replicas))
	}
	if s.Balance {
		list = append(list, "balance")
	}
	return strings.Join(list, " ")
}

type startFlag struct{ text string }

// flag defines the flag --start for an experiment that runs only in the simulator. The text allowed
// says which flags of the store's start command the value of --start may contain, with an example.
func (s *startFlag) flag(fs *pflag.FlagSet, allowed string) {
	s.define(fs, allowed, fmt.Sprintf("%d", simThreads), "the metadata server", "")
}

// rackFlag defines the flag --start for an experiment that also runs on a rack. The text allowed
// says which flags of the store's start command the value of --start may contain, with an example.
func (s *startFlag) rackFlag(fs *pflag.FlagSet, allowed string) {
	most := fmt.Sprintf("%d on a rack and %d in the simulator", rackThreads, simThreads)
	s.define(fs, allowed, most, "in the simulator the metadata server", "; on a rack the experiment fails if Clover runs with other values")
}

func (s *startFlag) define(fs *pflag.FlagSet, allowed, most, server, further string) {
	fs.StringVar(&s.text, "start", "", "flags with which Clover is started (see rdmalab clover start --help), separated by spaces; allowed are "+allowed+
		"; threads is at most "+most+" (default: none; "+server+" then has as many threads as --cost says, 12 with connectx5)"+further)
}

// parse returns the values of the flags that --start names, for a platform: OnSim or OnRack. All
// other flags of the store's start command are set by the experiment itself.
func (s *startFlag) parse(on string) (c CloverStart, err error) {
	maxThreads := rackThreads
	if on == OnSim {
		maxThreads = simThreads
	}
	fs := pflag.NewFlagSet("start", pflag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.IntVar(&c.Threads, "threads", 0, "")
	fs.IntVar(&c.Replicas, "replicas", 0, "")
	fs.BoolVar(&c.Balance, "balance", false, "")
	var args []string
	for flag := range strings.FieldsSeq(s.text) {
		args = append(args, "--"+strings.TrimLeft(flag, "-"))
	}
	if err = fs.Parse(args); err == nil && fs.NArg() > 0 {
		err = fmt.Errorf("%.40q is no flag", fs.Arg(0))
	}
	switch {
	case err != nil:
	case c.Threads < 0 || c.Threads > maxThreads:
		err = fmt.Errorf("threads=%d: want 0 to %d", c.Threads, maxThreads)
	case c.Replicas < 0 || c.Replicas > maxReplicas:
		err = fmt.Errorf("replicas=%d: want 1 to %d", c.Replicas, maxReplicas)
	}
	if err != nil {
		return c, fmt.Errorf("--start %.60q: %w; an experiment takes threads, replicas and balance", s.text, err)
	}
	return c, nil
}

// errCopiesSteered is the error for a load with copies of nodes and steering: the switch does not
// steer requests of a store whose nodes have copies.
var errCopiesSteered = errors.New("--start replicas: the switch cannot steer requests of a store with copies: use --steer none")
