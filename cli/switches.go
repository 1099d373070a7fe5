package cli

import (
	"context"
	"errors"
	"net/http"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// switchFlag is the flag that names one of several switches.
const switchFlag = "switch"

// addSwitchFlag adds the flag --switch to a command, and to those below it.
func addSwitchFlag(cmd *cobra.Command) {
	cmd.PersistentFlags().String(switchFlag, "", "which switch, of a rack with several (key fabric), like leaf0")
	must(cmd.RegisterFlagCompletionFunc(switchFlag, func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return switchNames(cmd), cobra.ShellCompDirectiveNoFileComp
	}))
}

// switchNames lists the switches of the rack; none if no rack is up.
func switchNames(cmd *cobra.Command) []string {
	r, _, err := rackOf(cmd)
	if err != nil {
		return nil
	}
	return r.SwitchNames()
}

// theSwitch returns the switch that a command is about: that of the flag --switch, or the only one.
func theSwitch(cmd *cobra.Command) (string, error) {
	r, _, err := rackOf(cmd)
	if err != nil {
		return "", err
	}
	name := ""
	f := cmd.Flags().Lookup(switchFlag)
	if f != nil {
		name = f.Value.String()
	}
	names := r.SwitchNames()
	switch {
	case name == "" && len(names) == 1:
		return names[0], nil
	case f == nil:
		return "", badUse("%s works with one switch, and rack %q has several (key fabric of its file)", cmd.CommandPath(), r.Name)
	case name == "":
		return "", badUse("rack %q has several switches; say which, by --switch: %s", r.Name, strings.Join(names, " "))
	case !r.IsSwitch(name):
		return "", badUse("rack %q has no switch %.40q; %sit has: %s", r.Name, name, nearest.Meant(name, names), strings.Join(names, " "))
	}
	return name, nil
}

// switchOfLinks returns the switch that captures links: that of the flag --switch, or the one that has
// all of them.
func switchOfLinks(cmd *cobra.Command, r *rackfile.Rack, links []string) (string, error) {
	if f := cmd.Flags().Lookup(switchFlag); len(links) == 0 || f != nil && f.Changed {
		return theSwitch(cmd)
	}
	at := r.SwitchOf(links[0])
	for _, l := range links[1:] {
		if other := r.SwitchOf(l); other != at {
			return "", badUse("%s is at %s and %s at %s: capture the links of one switch at a time", links[0], at, l, other)
		}
	}
	return at, nil
}

// checkLink is checkHost for what has a link: a host, a NIC, a trunk between switches, or a device.
func checkLink(r *rackfile.Rack, link string) error {
	if _, ok := r.TrunkNamed(link); ok {
		return nil
	}
	if _, ok := r.Devices.Named(link); ok {
		return nil
	}
	return checkHost(r, link)
}

// linkNames lists the links of the rack, for completion.
func linkNames(cmd *cobra.Command) []string {
	r, _, err := rackOf(cmd)
	if err != nil {
		return nil
	}
	return r.LinkNames()
}

// onSwitches calls f for each switch of the rack, also if one returns an error. It leaves out those of a
// fabric that a command has crashed.
func onSwitches(r *rackfile.Rack, paths rackfile.Paths, f func(name string, client *control.Client) error) error {
	var errs []error
	for _, name := range r.SwitchNames() {
		if _, err := os.Stat(paths.Crashed(name)); err == nil && r.Fabric != nil {
			continue
		}
		err := f(name, control.NewClient(paths.Socket(name)))
		if r.MachineOf(name) != r.Machine && (errors.Is(err, control.ErrNotRunning) || errors.Is(err, control.ErrCutOff)) {
			continue // it has crashed on another machine, or that machine is lost: the status says so
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// switchFaults returns the fault rules of all switches, and the partition.
func switchFaults(ctx context.Context, r *rackfile.Rack, paths rackfile.Paths) (list []fault.Status, partition [][]string, err error) {
	err = onSwitches(r, paths, func(name string, client *control.Client) error {
		var own []fault.Status
		var status switchd.Status
		if err := ask(ctx, client, name, http.MethodGet, "/faults", nil, &own); err != nil {
			return err
		}
		if err := ask(ctx, client, name, http.MethodGet, "/status", nil, &status); err != nil {
			return err
		}
		list = append(list, own...)
		if len(status.Partition) > 0 {
			partition = status.Partition
		}
		return nil
	})
	return list, partition, err
}
