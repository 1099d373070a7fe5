package main

import (
	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/topo/spec"
)

func execCmd() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "exec HOST -- CMD [ARG...]",
		Short: "Run a program on a host",
		Long: "exec runs any program of this machine inside a host: with its network, processes, host name and /etc/hosts.\n" +
			"Terminal and files are yours; the exit status is the program's. The program dies when the host crashes, and\n" +
			"stops when it hangs. Programs over package softrnic/ipc find the NIC of the host by $" + spec.EnvVerbs + ".\n" +
			"\"" + spec.SwitchName + "\" is a host here, too.",
		Example: "  rdmalab exec cn0 -- ping -c 3 ms0\n" +
			"  rdmalab exec ms0 -- bash\n" +
			"  rdmalab exec switch -- tcpdump -ni cn0 udp port 4791",
		Args:              cobra.MinimumNArgs(2),
		ValidArgsFunction: completeNodes,
		RunE: func(cmd *cobra.Command, args []string) error {
			r, err := openRack(cmd)
			if err != nil {
				return err
			}
			program := args[1:]
			if program[0] == "--" { // flag parsing has stopped at the host, before it
				program = program[1:]
			}
			if len(program) == 0 {
				return badUse("no program to run: rdmalab exec HOST -- COMMAND")
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
		},
	}
	// Flags behind the host are the program's, also without "--".
	cmd.Flags().SetInterspersed(false)
	return cmd
}
