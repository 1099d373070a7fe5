package cli

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Elsewhere is a rack that a program reaches in a way of its own, like one whose nodes are Pods of a cluster: the
// control sockets of the nodes that answer are at Paths. The commands of Commands work on it as on a rack of this machine.
type Elsewhere struct {
	Rack  *rackfile.Rack
	Paths rackfile.Paths
	// Name is what errors begin with. Program is what a user types in front of a command, like "kubectl rdmalab -n lab"; the name
	// of the rack follows the command. Further are the program's own commands, which texts name, too.
	Name, Program string
	Further       []string
}

// reachable are the commands that need nothing but control sockets, besides those of the stores.
var reachable = []string{
	"inject", "faults", "heal", "partition", "counters", "qps", "mrs", "cqs", "cms", "congestion", "why", "capture", "switch", "read", "pingpong", "perf", "run",
}

// Commands returns the commands that work on a rack elsewhere, by their names, with what they do.
func (*Elsewhere) Commands() map[string]string {
	list := make(map[string]string)
	for _, c := range reachableCommands() {
		list[c.Name()] = c.Short
	}
	return list
}

// reachableCommands makes the commands that work on a rack elsewhere.
func reachableCommands() []*cobra.Command {
	return slices.DeleteFunc(listedCommands(), func(c *cobra.Command) bool {
		return !slices.Contains(reachable, c.Name()) && !slices.Contains(store.Names(nil), c.Name())
	})
}

// elsewhereKey is the key of an Elsewhere in the context of a command.
type elsewhereKey struct{}

// elsewhereOf returns the rack of a command, if that is elsewhere; else nil.
func elsewhereOf(cmd *cobra.Command) *Elsewhere {
	if cmd.Context() == nil { // while the commands are made
		return nil
	}
	e, _ := cmd.Context().Value(elsewhereKey{}).(*Elsewhere)
	return e
}

// Run runs a command on the rack: its name, and the words behind it. It returns the exit status: that of the command,
// 1 after another error, and 2 for a mistake in the words; the error is on errOut.
func (e *Elsewhere) Run(ctx context.Context, in io.Reader, out, errOut io.Writer, words ...string) int {
	ctx = context.WithValue(ctx, elsewhereKey{}, e)
	root := rootCmd(reachableCommands()...)
	root.SetContext(ctx) // texts ask for it before a command begins
	root.SetArgs(words)
	root.SetIn(in)
	root.SetOut(out)
	root.SetErr(errOut)
	rackFlag := root.PersistentFlags().Lookup("rack")
	must(rackFlag.Value.Set(e.Rack.Name))
	rackFlag.Hidden = true
	ownName(root)
	err := execute(ctx, root)
	var code exitCode
	if err != nil && !errors.As(err, &code) {
		fmt.Fprintln(errOut, hintsOf(root).error(err))
	}
	return statusFor(err)
}

// reach returns the description and the paths of the rack.
func (e *Elsewhere) reach(cmd *cobra.Command) (*rackfile.Rack, rackfile.Paths, error) {
	if f := cmd.Flags().Lookup("rack"); f != nil && f.Changed {
		return nil, rackfile.Paths{}, badUse("leave out --rack: the rack is named behind the command, `%s %s`", productName, cmd.Name())
	}
	return e.Rack, e.Paths, nil
}

// open returns a handle by which commands reach the nodes.
func (e *Elsewhere) open() *rack.Rack { return rack.Far(e.Rack, e.Paths, e.status) }

// status says which nodes answer.
func (e *Elsewhere) status(ctx context.Context) (rack.Status, error) {
	s := rack.Status{Name: e.Rack.Name, State: rack.StateUp}
	node := func(name, role string) rack.NodeStatus {
		n := rack.NodeStatus{Name: name, Role: role, Machine: e.Rack.MachineOf(name), State: rack.StateUp}
		if err := ask(ctx, control.NewClient(e.Paths.Socket(name)), name, "GET", control.PathAlive, nil, nil); err != nil {
			n.State = rack.StateLost
		}
		return n
	}
	for _, name := range e.Rack.SwitchNames() {
		s.Switches = append(s.Switches, node(name, rackfile.SwitchName))
	}
	for i := range e.Rack.Hosts {
		s.Hosts = append(s.Hosts, node(e.Rack.Hosts[i].Name, string(e.Rack.Hosts[i].Role)))
	}
	s.Switch = s.Switches[0]
	s.State = s.Worst()
	return s, ctx.Err()
}

// broughtBack matches what to do about a node that does not run or hangs, by commands that a rack elsewhere does not have.
var broughtBack = regexp.MustCompile("`" + productName + " (?:restart|resume) [^`]*` (?:brings it back|ends it|ends that)")

// text returns a text in which commands are those that a user types: with the program's name, and the rack's behind the
// name of a command.
func (e *Elsewhere) text(root *cobra.Command, text string) string {
	text = broughtBack.ReplaceAllString(text, "see `"+productName+" status`")
	text = strings.ReplaceAll(text, "`"+productName+" --help`", "`"+e.Program+" --help`")
	return namedIn.ReplaceAllStringFunc(text, func(found string) string {
		m := namedIn.FindStringSubmatch(found)
		word := m[2]
		if !slices.Contains(e.Further, word) && !slices.ContainsFunc(root.Commands(), func(c *cobra.Command) bool { return c.Name() == word }) {
			return found
		}
		return m[1] + e.Program + " " + word + " " + e.Rack.Name
	})
}
