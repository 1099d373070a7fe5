package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/units"
)

// verbsFlags are the flags of `inject verbs`.
type verbsFlags struct {
	qpn, probability string
	jitter, lasting  time.Duration
	nth, next        int
	once             bool
	seed             uint64
}

func injectVerbsCmd() *cobra.Command {
	var f verbsFlags
	cmd := &cobra.Command{
		Use:   "verbs HOST KIND AMOUNT",
		Short: "Fail posts and completions of the programs on a host",
		Args:  cobra.ExactArgs(3),
		ValidArgsFunction: arguments(hostNames, words(string(fault.Completion), string(fault.Post), string(fault.Late)),
			words(append(fault.Errnos(), fault.StatusWords()...)...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := f.rule(cmd, args[0], args[1], args[2])
			if err != nil {
				return asUse(err)
			}
			if err := askNode(cmd, r.Host, http.MethodPost, hostd.PathVerbsFaults, r, &r); err != nil {
				return err
			}
			if wantJSON(cmd) {
				return printJSON(cmd, r)
			}
			return say(cmd, "%s: %s", r.ID, r)
		},
	}
	fs := cmd.Flags()
	fs.StringVar(&f.qpn, "qpn", "", "only this queue pair, decimal or 0x… (default: every queue pair of the host)")
	fs.IntVar(&f.nth, "nth", 0, "only the n-th event of each queue pair, from 1 (default: every one)")
	fs.StringVar(&f.probability, "probability", "", "share of the events that are hit, 10% or 0.1 (default: all)")
	fs.DurationVar(&f.jitter, "jitter", 0, "with late: each delay is longer or shorter by up to this time, at random, at most 1m (default 0s)")
	fs.BoolVar(&f.once, "once", false, "end after one hit")
	fs.IntVar(&f.next, "next", 0, "end after this many hits (default: no limit); not with --once")
	fs.DurationVar(&f.lasting, "for", 0, "end after this time, like 10s (default: until rdmalab heal)")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the rule's random numbers (default: the rack's seed)")
	outputFlag(cmd)
	return cmd
}

// rule makes a rule from arguments and flags.
func (f *verbsFlags) rule(cmd *cobra.Command, host, kind, amount string) (r fault.VerbsRule, err error) {
	set := cmd.Flags().Changed
	r = fault.VerbsRule{Host: host, Kind: fault.VerbsKind(kind), Jitter: f.jitter, Nth: f.nth, Count: f.next, For: f.lasting, Seed: f.seed}
	word := strings.TrimPrefix(strings.TrimPrefix(strings.ToUpper(amount), "IBV_WC_"), "IB_WC_")
	switch {
	case f.once && set("next"):
		return r, errors.New("--once and --next contradict each other")
	case set("next") && f.next < 1 || set("nth") && f.nth < 1:
		return r, errors.New("--next and --nth must be 1 or more")
	case set("for") && f.lasting <= 0:
		return r, fmt.Errorf("--for %v: use a time above 0, like 10s", f.lasting)
	case f.once:
		r.Count = 1
	}
	switch r.Kind {
	case fault.Completion:
		r.Status = word
	case fault.Post:
		r.Errno = word
	case fault.Late:
		if r.Delay, err = units.ParseDuration(amount); err != nil {
			return r, fmt.Errorf("late: %w", err)
		}
	}
	if set("qpn") {
		n, err := parseQPN(f.qpn)
		if err != nil {
			return r, err
		}
		r.QPN = &n
	}
	if set("probability") {
		if r.Probability, err = units.ParseProbability(f.probability); err != nil {
			return r, fmt.Errorf("--probability: %w", err)
		}
	}
	return r, r.Validate()
}

// wrapped breaks a text into lines of at most width columns.
func wrapped(text string, width int) string {
	var out strings.Builder
	used := 0
	for _, w := range strings.Fields(text) {
		if used > 0 && used+1+len(w) > width {
			out.WriteByte('\n')
			used = 0
		} else if used > 0 {
			out.WriteByte(' ')
			used++
		}
		out.WriteString(w)
		used += len(w)
	}
	return out.String()
}

// listVerbs asks all hosts at once for their rules at the verbs boundary. Hosts that do not answer are
// left out: listTears reports them.
func listVerbs(ctx context.Context, rack *rackfile.Rack, paths rackfile.Paths) (all []fault.VerbsStatus) {
	ctx, cancel := context.WithTimeout(ctx, tearWait)
	defer cancel()
	names := rack.NICNames()
	lists := make([][]fault.VerbsStatus, len(names))
	_ = atOnce(names, func(i int, name string) error {
		if err := control.NewClient(paths.Socket(name)).Call(ctx, http.MethodGet, hostd.PathVerbsFaults, nil, &lists[i]); err != nil {
			lists[i] = nil
		}
		return nil
	})
	return slices.Concat(lists...)
}

// verbsHost returns the host in the ID of a rule at the verbs boundary, verbs-HOST-N; "" if the ID is
// none.
func verbsHost(id string) string {
	rest, ok := strings.CutPrefix(id, fault.VerbsPrefix)
	i := strings.LastIndexByte(rest, '-')
	if !ok || i < 0 {
		return ""
	}
	return rest[:i]
}
