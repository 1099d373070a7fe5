package cli

import (
	"cmp"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func switchRulesCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rules",
		Short: "List, add, remove and load the rules of program swordbox",
		Args:  cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return listing(cmd, "/rules", printRules)
		},
	}
	listFlags(cmd)
	cmd.AddCommand(addRuleCmd(), removeRuleCmd(), loadRulesCmd())
	return cmd
}

func printRules(out io.Writer, names rackfile.Names, list []rules.Rule) error {
	const (
		none   = "no rules; add one: `rdmalab switch rules add server=ms0 action=atomics`"
		header = "ID\tSERVER\tACTION\tMODE\tRANGE\tRKEY\tSHARDS\tSERVICE"
	)
	return handler.WriteTable(out, list, none, header, func(r *rules.Rule) string {
		span := either(r.From != 0 || r.To != 0, fmt.Sprintf("%#x-%#x", r.From, r.To), "all")
		key := either(r.RKey != 0, fmt.Sprintf("%#x", r.RKey), "any")
		shards, service := "-", "-"
		if r.Moves() && r.Mode == rules.Hardened {
			shards, service = fmt.Sprint(r.NumShards()), cmp.Or(r.Service, "none")
		}
		return fmt.Sprintf("%s\t%s\t%v\t%v\t%s\t%s\t%s\t%s", r.ID, names.Of(r.Server), r.Action, r.Mode, span, key, shards, service)
	})
}

func addRuleCmd() *cobra.Command {
	var first bool
	cmd := &cobra.Command{
		Use:               "add KEY=VALUE…",
		Short:             "Add a rule behind or before the others",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: completeRule,
		RunE: func(cmd *cobra.Command, args []string) error {
			text := strings.Join(args, " ")
			if _, err := rules.Parse(text); err != nil { // finds mistakes without a request to the switch
				return badUse("rule: %w", err)
			}
			var r rules.Rule
			if err := askBox(cmd, http.MethodPost, "/rules", switchd.RuleText{Rule: text, First: first}, &r); err != nil {
				return err
			}
			return say(cmd, "rule %s is in force: %v", r.ID, r)
		},
	}
	cmd.Flags().BoolVar(&first, "first", false, "put the rule before the others, so that it applies to requests that it and another rule match")
	return cmd
}

func loadRulesCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "load RACKFILE",
		Short: "Replace the rules in force by those of a rack file",
		Args:  cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readFile(args[0])
			if err != nil {
				return asUse(err)
			}
			r, err := rackfile.ParseFile(args[0], data)
			if err != nil {
				return asUse(err)
			}
			in := switchd.RuleTexts{Rules: []string{}}
			for i := range r.Switch.Rules {
				in.Rules = append(in.Rules, r.Switch.Rules[i].String())
			}
			var list []rules.Rule
			if err := askBox(cmd, http.MethodPut, "/rules", in, &list); err != nil {
				return err
			}
			names, err := namesOf(cmd)
			if err != nil {
				return err
			}
			return printRules(hinted(cmd, cmd.OutOrStdout()), names, list)
		},
	}
}

// completeRule completes keys that the command line does not have yet, and the known values of a
// key.
func completeRule(cmd *cobra.Command, args []string, word string) ([]string, cobra.ShellCompDirective) {
	const plain = cobra.ShellCompDirectiveNoFileComp
	key, _, valued := strings.Cut(word, "=")
	if !valued {
		var out []string
		for _, k := range rules.Keys() {
			if !strings.Contains(" "+strings.Join(args, " "), " "+k+"=") {
				out = append(out, k+"=")
			}
		}
		return out, plain | cobra.ShellCompDirectiveNoSpace
	}
	values := map[string][]string{
		"action": rules.Actions(), "mode": {"hardened", "published"}, "service": {rules.DefaultService, "none"}, "range": {"all"},
		"rkey": {"any"}, "mtu": {"256", "512", "1024", "2048", "4096"},
	}[key]
	if key == "server" {
		values = serverNames(cmd)
	}
	for i := range values {
		values[i] = key + "=" + values[i]
	}
	return values, plain
}

// serverNames lists the hosts that register memory for other hosts.
func serverNames(cmd *cobra.Command) []string {
	r, _, err := rackOf(cmd)
	if err != nil {
		return nil
	}
	var names []string
	for _, h := range r.Hosts {
		if h.Role == rackfile.Memory || h.Memory > 0 {
			names = append(names, h.Name)
		}
	}
	return names
}

// ruleIDs lists the names of the switch's rules; none if the switch does not answer.
func ruleIDs(cmd *cobra.Command) (ids []string) {
	var list []rules.Rule
	_ = askBox(cmd, http.MethodGet, "/rules", nil, &list)
	for i := range list {
		ids = append(ids, list[i].ID)
	}
	return ids
}

func removeRuleCmd() *cobra.Command {
	return &cobra.Command{
		Use:               "remove ID…",
		Short:             "Remove rules by name",
		Args:              cobra.MinimumNArgs(1),
		ValidArgsFunction: everyArgument(ruleIDs),
		RunE: func(cmd *cobra.Command, ids []string) error {
			for _, id := range ids {
				if err := askBox(cmd, http.MethodDelete, "/rules/"+url.PathEscape(id), nil, nil); err != nil {
					return err
				}
				if err := say(cmd, "rule %s is removed", id); err != nil {
					return err
				}
			}
			return nil
		},
	}
}
