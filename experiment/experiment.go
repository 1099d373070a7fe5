package experiment

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/pflag"
)

const (
	OnSim  = "sim"
	OnRack = "rack"
)

type Experiment struct {
	// Name says what the experiment measures.
	Name string
	// Short is one line for a list.
	Short string
	// Lists returns the lists of the help text (see Long) by their names. It is nil if the text has
	// none. It is a function because some lists read the data of papers, which takes longer than most
	// commands need to run.
	Lists func() map[string][]string
	// Figure says which figure of which paper it reproduces.
	Figure string
	// Examples are further examples for a help text: each has the flags of one command line.
	Examples []string
	// Sim and Rack say how long the experiment takes with its defaults in the simulator and on a
	// rack. "" means that it does not run there.
	Sim, Rack string
	// Target names what the experiment uses in the memory of one memory server, like "lock". On a
	// rack, the operator chooses this server. "" means that the experiment uses all memory servers.
	Target string
	// Cost is the cost model that the simulator uses for the experiment by default.
	Cost string
	// New returns the experiment with its default parameters.
	New func() Body
}

// Body is an experiment with its parameters.
type Body interface {
	// Flags defines the flags that set the parameters.
	Flags(fs *pflag.FlagSet)
	// Check returns an error for the first parameter that is wrong. It also sets the parameters
	// that depend on where the experiment runs.
	Check(at Place) error
	// Run measures. It calls r.Columns once and then r.Add for each row, or sets r.Parts. If it fails,
	// r has what was measured before.
	Run(ctx context.Context, p Platform, r *Report) error
}

// Place says where and how an experiment runs.
type Place struct {
	// On is OnSim or OnRack. Hosts is the number of compute hosts of a rack.
	On    string
	Hosts int
	// Slow is true if the rack's 1RMA NICs have the parameters for the figures that are measured
	// in slow motion: on the testbed's network with all times multiplied (see SlowMotion).
	Slow bool
	// Quick, set by --quick, shortens measurements and leaves out those that are optional.
	Quick bool
}

// All lists the experiments in the order of a help text.
func All() []Experiment {
	return []Experiment{casOneWord, oneLock, writeContention, steeringGain, swordboxFigures, cloverChoices, cloverBaselines, fuseeFigures, treeOperations, treeLocks, shermanFigures, shermanChoices, memoryFigures, memoryRates, oneRMAFigures, rednFigures, rednGets, memcachedGets, lossRecovery, dcqcnExperiment, congestionFigures, ackCoalescing}
}

// Takes says how long the experiment takes on a platform. "" means that it does not run there.
func (e *Experiment) Takes(on string) string {
	if on == OnSim {
		return e.Sim
	}
	return e.Rack
}

func (e *Experiment) Report(p Platform) *Report {
	return &Report{Experiment: e.Name, Figure: e.Figure, On: p.On(), Platform: p.Describe(), Rows: []Row{}}
}

func oneOf(flag, value string, list ...string) error {
	if slices.Contains(list, value) {
		return nil
	}
	return fmt.Errorf("--%s %.40q: use %s", flag, value, strings.Join(list, ", "))
}

func clientsFlag(fs *pflag.FlagSet, dst *[]int) {
	fs.IntSliceVar(dst, "clients", *dst, fmt.Sprintf("numbers of clients, 1 to %d, separated by commas", maxClients))
}

// maxClients bounds the clients of one measurement.
const maxClients = 4096

func checkClients(list []int, most int) error {
	if len(list) == 0 {
		return errors.New("--clients: want at least one number")
	}
	for _, n := range list {
		if n < 1 || n > most {
			return fmt.Errorf("--clients %d: want 1 to %d", n, most)
		}
	}
	return nil
}
