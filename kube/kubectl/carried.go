package kubectl

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/cli"
)

// own are the plugin's own commands that name a rack.
var own = []string{"status", "logs", "exec", "crash"}

// carriedCmds makes the commands of rdmalab that need nothing but control sockets. They run here, with the flags and texts that
// they have on one machine.
func (o *options) carriedCmds() (list []*cobra.Command) {
	short := new(cli.Elsewhere).Commands()
	for _, name := range slices.Sorted(maps.Keys(short)) {
		list = append(list, &cobra.Command{
			Use: name + " RACK …", Short: short[name], DisableFlagParsing: true,
			RunE: func(cmd *cobra.Command, args []string) error { return carried(cmd, o, args) },
		})
	}
	return list
}

// carried runs a command of rdmalab on a rack.
func carried(cmd *cobra.Command, o *options, args []string) error {
	fs := cmd.Root().PersistentFlags() // those of the plugin are in front of the rack's name
	fs.SetInterspersed(false)
	if slices.Contains([]string{"-h", "--help", "help"}, strings.Join(args[:min(1, len(args))], "")) {
		_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s\n\nUsage: kubectl rdmalab [-n NAMESPACE] %s RACK …\n\nThe words behind RACK are those of `rdmalab %[2]s`: `kubectl rdmalab %[2]s RACK --help`.\n", cmd.Short, cmd.Name())
		return err
	}
	if err := fs.Parse(args); err != nil {
		return badUse("%w: name the Rack first: `kubectl rdmalab %s RACK …`", err, cmd.Name())
	}
	args = fs.Args()
	if len(args) == 0 {
		return badUse("name the Rack: `kubectl rdmalab %s RACK …`", cmd.Name())
	}
	c, err := o.open()
	if err != nil {
		return err
	}
	v, err := c.look(cmd.Context(), args[0])
	if err != nil {
		return err
	}
	v.warn(cmd.ErrOrStderr())
	f, err := v.forward(cmd.Context())
	if err != nil {
		return err
	}
	defer func() { _ = f.close() }() // what it is about has been said
	e := &cli.Elsewhere{Rack: v.spec, Paths: f.paths, Name: name, Program: c.typed, Further: own}
	code := e.Run(cmd.Context(), cmd.InOrStdin(), cmd.OutOrStdout(), cmd.ErrOrStderr(), append([]string{cmd.Name()}, args[1:]...)...)
	if code == 0 {
		return nil
	}
	for _, text := range f.said() {
		fmt.Fprintf(cmd.ErrOrStderr(), "%s: %s\n", name, text)
	}
	return exitCode(code)
}
