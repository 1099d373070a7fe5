package sherman

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/sherman/layout"
)

// Step is one of the designs between FG+, the baseline of Sherman's paper, and Sherman itself. Each
// step adds one technique to the step before it. FG+ is a tree with Sherman's index cache. Its
// writers lock a page by CAS on a word in the page (CONFIG_ENABLE_EMBEDDING_LOCK in the authors'
// code) and write the page as a whole. A writer holds one lock at a time.
type Step struct {
	// Name selects the step. Adds says what it adds to the step before it.
	Name, Adds string
	// Uncombined and Unqueued are the values that the step gives to these fields of NodeConfig, and
	// PageLocks is its value for the field of FormatConfig. Kind is the kind of the pages of a new
	// tree.
	Uncombined, PageLocks, Unqueued bool
	Kind                            layout.Kind
}

// Steps lists the steps from FG+ to Sherman in the order of the paper.
func Steps() []Step {
	return []Step{
		{"fg+", "a lock in each page, no queues, whole pages with a checksum", true, true, true, layout.Checksummed},
		{"combine", "the WRITE of the page and the release of its lock share a doorbell", false, true, true, layout.Checksummed},
		{"on-chip", "lock words in device memory of the NICs", false, false, true, layout.Checksummed},
		{"hierarchical", "clients of a compute node queue for locks and hand them over", false, false, false, layout.Checksummed},
		{"sherman", "a write changes one record, which lies in one line of 64 bytes (in the paper: two levels of versions)", false, false, false, layout.Hardened},
	}
}

// FindStep returns the step with a name; "" is Sherman.
func FindStep(name string) (Step, error) {
	all := Steps()
	if name == "" {
		return all[len(all)-1], nil
	}
	i := slices.IndexFunc(all, func(s Step) bool { return s.Name == name })
	if i < 0 {
		return Step{}, fmt.Errorf("step %.40q: %swant one of %s", name, nearest.Meant(name, StepNames()), strings.Join(StepNames(), ", "))
	}
	return all[i], nil
}

func StepNames() (names []string) {
	for _, s := range Steps() {
		names = append(names, s.Name)
	}
	return names
}

// Node returns cfg with the settings of the step.
func (s Step) Node(cfg NodeConfig) NodeConfig {
	cfg.Uncombined, cfg.Unqueued = s.Uncombined, s.Unqueued
	return cfg
}
