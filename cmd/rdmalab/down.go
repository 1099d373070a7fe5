package main

import (
	"errors"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/rack"
)

func downCmd() *cobra.Command {
	var all bool
	cmd := &cobra.Command{
		Use:   "down",
		Short: "Remove a rack, including the remains of a crashed one",
		Long: "down ends every process of the rack and removes its namespaces, containers, links, cgroups and files. It finds them\n" +
			"by the name of the rack, so it works whatever has crashed before, and it touches nothing else. It prints for each\n" +
			"rack whether it is down now or was not up; a rack that was not up is no error. down needs root.",
		Example: "  sudo rdmalab down\n" +
			"  sudo rdmalab down --all",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if all {
				return downAll(cmd)
			}
			name, err := rackName(cmd)
			if err != nil {
				return err
			}
			return downOne(cmd, name)
		},
	}
	cmd.Flags().BoolVar(&all, "all", false, "remove every rack")
	return cmd
}

func downAll(cmd *cobra.Command) error {
	names, err := rack.List()
	if err != nil {
		return err
	}
	if len(names) == 0 {
		return say(cmd, "no rack is up")
	}
	for _, name := range names {
		err = errors.Join(err, downOne(cmd, name))
	}
	return err
}

func downOne(cmd *cobra.Command, name string) error {
	found, err := rack.Down(cmd.Context(), name)
	if err != nil {
		return err
	}
	if !found {
		return say(cmd, "rack %q is not up%s", name, otherRacks(name))
	}
	return say(cmd, "rack %q is down", name)
}
