package cli

import (
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/uverbs/preload"
	"github.com/rdmalab/rdmalab/topo/rack"
)

func execCmd() *cobra.Command {
	var shared bool
	var provider providerFlag
	cmd := &cobra.Command{
		Use:                   "exec HOST -- CMD [ARG...]",
		DisableFlagsInUseLine: true, // cobra would print [flags] behind HOST, where they must not be
		Short:                 "Run a program on a host",
		Args:                  cobra.MinimumNArgs(2),
		ValidArgsFunction:     arguments(nodeNames),
		RunE: onRack(func(cmd *cobra.Command, args []string, r *rack.Rack) error {
			program := args[1:]
			if program[0] == "--" { // the parsing of flags ends at HOST, so "--" is still there
				program = program[1:]
			}
			switch {
			case len(program) == 0:
				return badUse("no program to run: rdmalab exec HOST -- COMMAND")
			case strings.HasPrefix(program[0], "-"):
				return badUse("%q behind the host is no program: exec passes on the terminal and the input by itself; write: rdmalab exec %s -- %s",
					program[0], args[0], behindFlags(program))
			}
			if err := provider.set(); err != nil {
				return err
			}
			if shared {
				if err := os.Setenv(uverbs.EnvMemory, uverbs.SharedMemory); err != nil {
					return err
				}
			}
			if checkHost(r.Spec, args[0]) == nil {
				_, has := preload.Library()
				warnNoLibrary(cmd.ErrOrStderr(), has)
			}
			code, err := r.Exec(args[0], program)
			switch {
			case err != nil && code != 0:
				return failure{err, code}
			case err != nil:
				return err
			case code != 0:
				return exitCode(code)
			}
			return nil
		}),
	}
	cmd.Flags().BoolVar(&shared, "shared-memory", false, "a libibverbs program shares its registered memory with the daemon; write this flag before HOST")
	provider.add(cmd)
	// Flags behind the name of the host belong to the program, also without "--".
	cmd.Flags().SetInterspersed(false)
	return cmd
}

// behindFlags returns the command that is behind flags and "--", or CMD if there is none.
func behindFlags(words []string) string {
	if i := slices.Index(words, "--"); i >= 0 && i+1 < len(words) {
		return strings.Join(words[i+1:], " ")
	}
	return "CMD"
}
