package cli

import (
	"context"
	"net/http"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

func partitionCmd() *cobra.Command {
	var end bool
	cmd := &cobra.Command{
		Use:               "partition GROUP [GROUP...] | partition --mend",
		Short:             "Drop every frame between groups of hosts",
		ValidArgsFunction: everyArgument(hostNames),
		RunE: func(cmd *cobra.Command, args []string) error {
			if end && (len(args) > 0 || cmd.Flags().Changed("for")) {
				return badUse("--mend ends the partition and takes nothing else, neither groups nor --for")
			}
			return hurt(cmd, func(r *rack.Rack) (rack.Action, string, error) {
				if end {
					return rack.ActionEndPartition, "no host is kept apart", doers()[rack.ActionEndPartition](cmd.Context(), r, rackfile.SwitchName)
				}
				groups, err := parseGroups(r, args)
				if err != nil {
					return "", "", err
				}
				return rack.ActionEndPartition, describe(r.Spec, groups), askSwitch(cmd.Context(), r, http.MethodPost, switchd.Partition{Groups: linksOf(r.Spec, groups)})
			}, rackfile.SwitchName)
		},
	}
	cmd.Flags().BoolVar(&end, "mend", false, "end the partition; not with groups or --for; no error if there is none")
	forFlag(cmd, "end the partition after this time, up to 24h, like 10s (default: it stays until --mend or rdmalab heal)")
	return cmd
}

func parseGroups(r *rack.Rack, args []string) ([][]string, error) {
	if len(args) == 0 {
		return nil, badUse("name a group of hosts, like cn0,cn1; hosts: %s", strings.Join(r.Spec.HostNames(), " "))
	}
	group := make(map[string]int)
	groups := make([][]string, len(args))
	for i, arg := range args {
		for pattern := range strings.SplitSeq(arg, ",") {
			names, err := rackfile.Expand(pattern)
			if err != nil {
				return nil, asUse(err)
			}
			for _, name := range names {
				if err := r.CheckHost(name); err != nil {
					return nil, err
				}
				if host := rackfile.MachineOf(name); host != name {
					return nil, badUse("%s is a NIC, and a partition is one of hosts with all their NICs: name %s, or cut one link by `rdmalab link %s down`", name, host, name)
				}
				if g, ok := group[name]; ok && g != i {
					return nil, badUse("%s is in two groups; a host is on one side only", name)
				}
				group[name] = i
				if !slices.Contains(groups[i], name) {
					groups[i] = append(groups[i], name)
				}
			}
		}
	}
	if len(groups) == 1 && len(groups[0]) == len(r.Spec.HostNames()) {
		return nil, badUse("these are all hosts of the rack, and nothing would keep them apart; leave some out, or name a second group")
	}
	return groups, nil
}

// linksOf returns the groups with the links of all NICs of their hosts.
func linksOf(s *rackfile.Rack, groups [][]string) [][]string {
	out := make([][]string, len(groups))
	for i, group := range groups {
		for _, host := range group {
			for _, nic := range s.NICs(host) {
				out[i] = append(out[i], nic.Name)
			}
		}
	}
	return out
}

func describe(s *rackfile.Rack, groups [][]string) string {
	if len(groups) == 1 {
		rest := slices.DeleteFunc(s.HostNames(), func(h string) bool { return slices.Contains(groups[0], h) })
		groups = [][]string{groups[0], rest}
	}
	return "kept apart: " + groupsText(groups)
}

// groupsText lists groups of hosts: "cn0,cn1 | ms0".
func groupsText(groups [][]string) string {
	sides := make([]string, len(groups))
	for i, g := range groups {
		sides[i] = strings.Join(g, ",")
	}
	return strings.Join(sides, " | ")
}

func askSwitch(ctx context.Context, r *rack.Rack, method string, in any) error {
	return onSwitches(r.Spec, r.Paths, func(name string, client *control.Client) error {
		return ask(ctx, client, name, method, "/partition", in, nil)
	})
}
