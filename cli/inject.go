package cli

import (
	"cmp"
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
)

func injectCmd() *cobra.Command {
	var flags ruleFlags
	cmd := &cobra.Command{
		Use:   "inject KIND [AMOUNT] {--link | --host} HOST",
		Short: "Lose, delay, duplicate, corrupt … packets on a link, by chance or exactly",
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 2 {
				return badUse("%.40q is too much; %s (see `rdmalab inject --help`)", args[2], insteadOf(args))
			}
			return cobra.MinimumNArgs(1)(cmd, args)
		},
		ValidArgsFunction: arguments(words(injectKinds()...)),
		RunE: func(cmd *cobra.Command, args []string) error {
			amount := ""
			if len(args) == 2 {
				amount = args[1]
			}
			r, err := flags.rule(args[0], amount)
			if err != nil {
				return asUse(err)
			}
			return runInject(cmd, r, &flags)
		},
	}
	flags.define(cmd.Flags())
	completeFlag(cmd, "dir", words("up", "down", "both"))
	completeFlag(cmd, "class", words(fault.Classes()...))
	completeFlag(cmd, "link", hostNames)
	completeFlag(cmd, "host", hostNames)
	completeFlag(cmd, "opcode", opcodeNames)
	outputFlag(cmd)
	cmd.AddCommand(injectNICCmd(), injectVerbsCmd())
	return cmd
}

// insteadOf says what to write instead of arguments of which the third is too much.
func insteadOf(args []string) string {
	const form = "write: rdmalab inject KIND [AMOUNT] --link HOST"
	kind, amount, more := args[0], args[1], args[2]
	_, jitter := time.ParseDuration(more)
	switch {
	case more == "%":
		return fmt.Sprintf("write the share as one word: rdmalab inject %s %s%% --link HOST", kind, amount)
	case kind == string(fault.Delay) && jitter == nil:
		return fmt.Sprintf("the jitter is a flag: rdmalab inject delay %s --jitter %s --link HOST", amount, more)
	case kind == string(fault.Delay) && more == "distribution":
		return fmt.Sprintf("delays are spread evenly: rdmalab inject delay %s --jitter 2ms --link HOST", amount)
	case amount == "random" && slices.Contains(injectKinds(), kind):
		return fmt.Sprintf("each packet is hit at random: rdmalab inject %s %s --link HOST", kind, more)
	case strings.HasSuffix(more, "%") && slices.Contains(injectKinds(), kind):
		return fmt.Sprintf("packets are hit independently of each other: rdmalab inject %s %s --link HOST", kind, amount)
	case !slices.Contains(injectKinds(), kind) && slices.Contains(injectKinds(), amount):
		return fmt.Sprintf("%q is no kind; write: rdmalab inject %s %s --link HOST", kind, amount, more)
	case rackfile.CheckHostName(more) != nil || rackfile.CheckHostName(amount) == nil || len(args) > 3:
		return form
	}
	return fmt.Sprintf("give the link by a flag: rdmalab inject %s %s --link %s", kind, amount, more)
}

func runInject(cmd *cobra.Command, r fault.Rule, flags *ruleFlags) error {
	asJSON := wantJSON(cmd)
	rack, paths, err := rackOf(cmd)
	if err != nil {
		return err
	}
	links, err := injectWhere(rack, r.Kind, flags)
	if err != nil {
		return asUse(err)
	}
	if r.ID != "" && len(links) > 1 {
		return badUse("--id names one rule, and each of the links gets a rule: give one link, or leave --id out")
	}
	rules := make([]fault.Rule, len(links))
	for i, link := range links {
		rules[i] = r
		rules[i].Link = link
		if r.Kind == fault.Tear && !flags.set("dir") {
			rules[i].Dir = ""
		}
		if err := rules[i].Validate(); err != nil { // so that either all rules are installed, or none
			return asUse(err)
		}
	}
	for i := range rules {
		if rules[i], err = injectOne(cmd.Context(), rack, paths, rules[i], flags.replace); err != nil {
			return err
		}
		if !asJSON {
			fmt.Fprintf(cmd.OutOrStdout(), "%s: %s\n", rules[i].ID, rules[i])
		}
	}
	if asJSON {
		return printJSON(cmd, rules)
	}
	return nil
}

func injectWhere(rack *rackfile.Rack, kind fault.Kind, flags *ruleFlags) ([]string, error) {
	links := flags.links
	switch {
	case kind == fault.Tear && flags.host == "" && len(links) == 0:
		return nil, fmt.Errorf("tear needs --host, the host whose memory it is in; hosts: %s", strings.Join(rack.NICNames(), " "))
	case kind != fault.Tear && flags.host != "":
		return nil, errors.New("--host goes with tear only; a link is named with --link")
	case flags.host != "" && len(links) != 0:
		return nil, errors.New("--host and --link mean the same for tear; give one")
	case flags.host != "":
		links = []string{flags.host}
	case len(links) == 0:
		return nil, fmt.Errorf("a fault needs --link HOST, or --link all; hosts: %s", strings.Join(rack.NICNames(), " "))
	}
	if slices.Equal(links, []string{"all"}) {
		return rack.NICNames(), nil
	}
	var out []string
	for _, pattern := range links {
		names, err := rackfile.Expand(pattern)
		if err != nil {
			return nil, err
		}
		for _, l := range names {
			if err := either(kind == fault.Tear, checkHost, checkLink)(rack, l); err != nil {
				return nil, err
			}
			if !slices.Contains(out, l) {
				out = append(out, l)
			}
		}
	}
	return out, nil
}

// injectOne installs a rule at the daemon that applies it: the host's for kind tear, otherwise that of
// the switch with the link. With replace it takes the place of others; a host has at most one rule of kind tear anyway.
func injectOne(ctx context.Context, rack *rackfile.Rack, paths rackfile.Paths, r fault.Rule, replace bool) (fault.Rule, error) {
	node, path, in, out := rack.SwitchOf(r.Link), "/faults", any(r), any(&r)
	method := either(replace, http.MethodPut, http.MethodPost)
	if r.Kind == fault.Tear {
		t := hostd.Tear{Probability: cmp.Or(r.Probability, 1), Seed: r.Seed, Pause: r.Delay, For: r.For}
		r.ID = tearID(r.Link)
		node, path, in, out, method = r.Link, hostd.PathTear, t, nil, http.MethodPost
	}
	err := ask(ctx, control.NewClient(paths.Socket(node)), node, method, path, in, out)
	return r, err
}

// tearPrefix begins the IDs under which torn copies are listed as rules. Each host has at most one
// fault of this kind.
const tearPrefix = "tear-"

func tearID(host string) string { return tearPrefix + host }

// withNode adds the name of the node to an error if the node's daemon did not answer.
func withNode(err error, node string) error {
	var answered *control.Error
	switch {
	case err == nil || errors.As(err, &answered) || errors.Is(err, control.ErrPrivilege) || errors.Is(err, errInterrupted):
		return err
	case errors.Is(err, control.ErrNotRunning):
		return fmt.Errorf("%s does not run (%w); `rdmalab restart %s` brings it back", node, err, node)
	case errors.Is(err, control.ErrSilent):
		return fmt.Errorf("%s does not answer; see `rdmalab status`", node)
	case errors.Is(err, context.Canceled):
		return errInterrupted
	}
	return fmt.Errorf("%s: %w", node, err)
}

// errInterrupted is the error after control-C.
var errInterrupted = errors.New("interrupted")

// awake returns an error if a daemon does not answer. It is called before requests without a time
// limit, and before those with a long one.
func awake(ctx context.Context, client *control.Client, node string) error {
	err := ask(ctx, client, node, http.MethodGet, control.PathAlive, nil, nil)
	var answered *control.Error
	if errors.As(err, &answered) { // a daemon of an earlier version, which does not know the path, answers, too
		return nil
	}
	return err
}
