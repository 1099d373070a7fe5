package cli

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/machines"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Of a rack on several machines, most commands reach the daemons by the sockets that the client has of all
// of them (rackOf). The commands below need processes or files: the client runs them on the machine of
// their first argument, or refuses them.

// atNode are the commands that are run on the machine of the node that they name first.
var atNode = []string{"exec", "env", "crash", "restart", "hang", "resume", "link", "logs"}

// onlyHere are the commands that need the rack on this machine, with the reason and what to do.
var onlyHere = map[string]string{
	"apply":    "it cannot tell several machines of one change: run `rdmalab down`, and then `rdmalab up` with the new file",
	"compose":  "containers of a rack are on one machine",
	"cni":      "containers of a rack are on one machine",
	"exercise": "an exercise is prepared on one machine: choose another rack by --rack",
	"web":      "the page controls processes of this machine: `rdmalab top` and `rdmalab metrics` show all machines",
}

// carryAll makes the commands of atNode and onlyHere look whether the rack is on several machines.
func carryAll(commands []*cobra.Command) {
	for _, c := range commands {
		run := c.RunE
		reason, here := onlyHere[c.Name()]
		if run == nil || !here && !slices.Contains(atNode, c.Name()) {
			continue
		}
		c.RunE = func(cmd *cobra.Command, args []string) error {
			client, several, err := carried(cmd)
			switch {
			case err != nil:
				return err
			case !several:
				return run(cmd, args)
			case here:
				return fmt.Errorf("rack %q is on several machines, and %s works on a rack of this machine alone: %s", client.Rack.Name, cmd.CommandPath(), reason)
			}
			return carry(cmd, client, args)
		}
	}
}

// carry runs a command on the machine of the node that it names, or on all machines if it names none.
func carry(cmd *cobra.Command, client *machines.Client, args []string) error {
	words := sameWords(cmd, args)
	if len(args) == 0 {
		return client.RunAll(cmd.Context(), cmd.OutOrStdout(), words...)
	}
	node := args[0]
	at := client.Rack.MachineOf(node)
	if at == "" {
		if err := checkNode(client.Rack, node); err != nil {
			return err
		}
	}
	var in io.Reader
	program := cmd.Name() == "exec"
	if program { // the other commands read nothing, and leave a caller's input alone
		in = cmd.InOrStdin()
	}
	code, err := client.Run(cmd.Context(), at, in, program && terminals(), words...)
	if err == nil && code != 0 {
		return exitCode(code)
	}
	return err
}

// sameWords returns the words of a command line that is the same as that of cmd.
func sameWords(cmd *cobra.Command, args []string) []string {
	words := strings.Fields(cmd.CommandPath())[1:]
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.Name == "rack" {
			return
		}
		values := []string{f.Value.String()}
		if list, ok := f.Value.(pflag.SliceValue); ok {
			values = list.GetSlice()
		}
		for _, v := range values {
			words = append(words, "--"+f.Name+"="+v)
		}
	})
	return append(append(words, "--"), args...)
}

// reach returns the description and the paths of a rack on several machines, and opens the connections to
// them. It says which do not answer.
func reach(cmd *cobra.Command, client *machines.Client) (*rackfile.Rack, rackfile.Paths, error) {
	if err := client.Connect(cmd.Context()); err != nil {
		fmt.Fprintln(cmd.ErrOrStderr(), hintsOf(cmd).error(err))
	}
	return client.Rack, client.Paths, nil
}

// plan prints what up would do with a rack on several machines.
func plan(w io.Writer, r *rackfile.Rack) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "MACHINE\tSSH\tSWITCHES\tHOSTS")
	for _, m := range r.Machines {
		on := func(names []string) string {
			return strings.Join(slices.DeleteFunc(names, func(n string) bool { return r.MachineOf(n) != m.Name }), " ")
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", m.Name, m.SSH, on(r.SwitchNames()), on(r.HostNames()))
	}
	fmt.Fprintln(t, "\nTRUNK\tENDS")
	for _, c := range r.Trunks() {
		near := r.MachineOf(c.Leaf)
		ends := "on " + near
		if local, peer, remote := r.Remote(c, c.Leaf); remote {
			ends = fmt.Sprintf("%s %[5]s %[2]s - %[3]s %[5]s %[4]s", near, local, r.MachineOf(c.Far), peer, r.Fabric.CarrierName())
		}
		fmt.Fprintf(t, "%s\t%s\n", c.Name(), ends)
	}
	return t.Flush()
}

// upOnMachines is runUp for a rack on several machines.
func upOnMachines(cmd *cobra.Command, s *rackfile.Rack, verify bool) error {
	begin := time.Now()
	client, err := machines.Up(cmd.Context(), s, wholeVersion())
	already := errors.Is(err, rack.ErrAlreadyUp)
	if err != nil && !already {
		return fmt.Errorf("rack %q: %w", s.Name, err)
	}
	took := time.Since(begin)
	down := client.AwaitTrunks(cmd.Context())
	status, err := client.Status(cmd.Context())
	if err != nil {
		return err
	}
	out := cmd.OutOrStdout()
	if already {
		fmt.Fprintf(out, "rack %q is up already\n\n", s.Name)
	} else {
		fmt.Fprintf(out, "rack %q is up: %s on %s in %v\n\n", s.Name, count(len(s.HostNames()), "host"), count(len(s.Machines), "machine"), took.Round(time.Millisecond))
	}
	if err := printStatus(hinted(cmd, out), status); err != nil {
		return err
	}
	if down != nil {
		return fmt.Errorf("rack %q is up, but not every trunk works: %w", s.Name, down)
	}
	if verify && !already {
		fmt.Fprintln(out)
		if err := verifyPaths(cmd, rack.Far(client.Rack, client.Paths, client.Status)); err != nil {
			return fmt.Errorf("rack %q is up, but not every path works:\n%w\nSee `rdmalab logs`; `rdmalab down` takes it away", s.Name, err)
		}
	}
	_, err = fmt.Fprint(out, hintsOf(cmd).named(nextSteps(s)))
	return err
}

// printMachines lists the machines of a rack that do not answer.
func printMachines(w io.Writer, s rack.Status) error {
	for _, m := range s.Machines {
		if m.Error != "" {
			if _, err := fmt.Fprintf(w, "\n%s; its hosts are lost with it. When it is back, `rdmalab up -f` the rack file takes it in again\n", m.Error); err != nil {
				return err
			}
		}
	}
	return nil
}
