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
		Long: "A rule of program swordbox selects requests by memory server, address and R_Key, and says what the switch does with\n" +
			"them. `rdmalab switch rules add --help` explains its keys.\n\n" +
			"rules lists the rules in force. The first rule that matches a request applies to it. Rules of action count only\n" +
			"observe, and rules of lookup and buffer are about frames, so such rules may apply in addition. Requests that no rule\n" +
			"matches are forwarded unchanged. Columns have the names of keys; -o json also has the other keys that are set.\n" +
			"SHARDS and SERVICE are shown for rules of action move and atomics in mode hardened, and are - for all others.\n\n" +
			"When the rack comes up, the rules are those of the rack file. Changes by `rules add`, `remove` and `load` last\n" +
			"until `rdmalab down` or `rdmalab switch program`; they survive a crash of the switch.",
		Example: "  rdmalab switch rules\n" +
			"  rdmalab switch rules add server=ms0 action=atomics\n" +
			"  rdmalab switch rules remove r1\n" +
			"  rdmalab switch rules load topo/racks/swordbox.yaml",
		Args: cobra.NoArgs,
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
		none   = "no rules; add one: rdmalab switch rules add server=ms0 action=atomics"
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
	actions := listedAll(10, rules.Definitions(), func(a rules.Definition) (name, text string) { return a.Name, a.Doc })
	keys := listedAll(22, rules.Fields(), func(f rules.Field) (name, text string) { return f.Key + "=" + f.Example, f.Doc })
	var first bool
	cmd := &cobra.Command{
		Use:   "add KEY=VALUE…",
		Short: "Add a rule behind or before the others",
		Long: "add adds a rule behind the others, or with --first before them, and prints the rule with its name. The arguments are\n" +
			"the keys of a rule, as in a rack file; server and action are required. The switch must run program swordbox\n" +
			"(`rdmalab switch program swordbox`).\n\n" +
			"Actions track, move, atomics and steer: the first rule that matches a request applies to it. Among the rules of one\n" +
			"server, steer cannot be combined with move or atomics. All rules of the server with these three actions must have\n" +
			"the same mode, and those with move or atomics also the same shards, service, depth and mtu.\n\n" +
			"Action count: the first rule of this action that matches a request applies in addition. Actions lookup and buffer:\n" +
			"the rules are about all frames of a host, and apply in addition.\n\n" +
			"add fails if a rule would never apply, because an earlier rule takes all requests that it matches, or if rules need\n" +
			"the same memory of a server. There can be 256 rules.\n\n" +
			"A shared connection carries requests of several clients to a memory server. In mode hardened the switch makes it; in\n" +
			"mode published it is the connection of one client. The daemon of a host has a memory service, which registers\n" +
			"memory, the region, for other hosts. In the store Clover a node is one version of a key's value, and an append is the\n" +
			"CAS that puts a new node behind the newest one. Actions:\n\n" +
			actions + "\nKeys, with examples:\n\n" + keys,
		Example: "  rdmalab switch rules add server=ms0 action=atomics shards=2\n" +
			"  rdmalab switch rules add id=page server=ms1 action=move range=0x7f00c8c00000-0x7f00c8d00000",
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
		Long: "load replaces the rules in force by those of a rack file (key `rules` below `switch`), and lists them as `rdmalab\n" +
			"switch rules` does. Mistakes in the file are reported with line and column. If the switch refuses a rule, the error\n" +
			"says why, and all earlier rules stay. The rest of the file is checked, but has no effect on the rack.\n\n" + needsSwordBox,
		Example: "  rdmalab switch rules load topo/racks/swordbox.yaml",
		Args:    cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			data, err := readFile(args[0])
			if err != nil {
				return err
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
			return printRules(cmd.OutOrStdout(), names, list)
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

func removeRuleCmd() *cobra.Command {
	return &cobra.Command{
		Use:   "remove ID…",
		Short: "Remove rules by name",
		Long: "remove ends the rules with these names, and prints a line for each; `rdmalab switch rules` lists the rules. It fails\n" +
			"at the first name that no rule has; the rules named before it are removed. Requests that arrive later are treated by\n" +
			"the remaining rules, or forwarded unchanged.\n\n" +
			"A removed rule may have moved requests of a client to a connection of the switch. Then the packet sequence numbers\n" +
			"(PSNs) of the client and of the server differ, and the switch continues to translate them until the client's\n" +
			"connection ends.\n\n" + needsSwordBox,
		Example: "  rdmalab switch rules add id=locks server=ms0 action=atomics\n" +
			"  rdmalab switch rules remove locks",
		Args: cobra.MinimumNArgs(1),
		ValidArgsFunction: everyArgument(func(cmd *cobra.Command) (ids []string) {
			var list []rules.Rule
			_ = askBox(cmd, http.MethodGet, "/rules", nil, &list) // without an answer there are no IDs
			for i := range list {
				ids = append(ids, list[i].ID)
			}
			return ids
		}),
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
