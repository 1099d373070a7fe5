package main

import (
	"io"

	"github.com/spf13/cobra"
)

// treeWords are the commands of the tree's shell and how they are used.
var treeWords = [][2]string{
	{"get KEY", "read a value"},
	{"put KEY VALUE", "replace the value of a key that exists"},
	{"insert KEY VALUE", "give a new key a value"},
	{"upsert KEY VALUE", "give a key a value, whether it has one or not"},
	{"delete KEY", "take a key away"},
	{"scan KEY", "list keys from there on"},
	{"stat", "the tree, its locks, and what the host's clients did"},
	{"check", "read the whole tree and prove that it is whole"},
	{"help", "this list"},
	{"exit", "leave; so does the end of the input"},
}

// shermanShellCmd reads commands of the tree line by line.
func shermanShellCmd() *cobra.Command {
	var from string
	var verbose bool
	cmd := &cobra.Command{
		Use:   "shell",
		Short: "Type get, put, insert, delete, scan, stat and check",
		Long: "shell reads commands line by line, with history and editing on a terminal. Input that is piped in is carried\n" +
			"out to its end; exit status 1 if one of the lines failed. A value is the rest of its line.",
		Example: "  rdmalab sherman shell\n" +
			"  printf 'insert 7 hello\\nscan 0\\n' | rdmalab sherman shell",
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return runShell(cmd, shell{"sherman> ", treeWords}, func(out, errOut io.Writer, args ...string) error {
				sub := shermanCmd()
				sub.PersistentFlags().AddFlagSet(cmd.InheritedFlags())
				sub.SilenceUsage, sub.SilenceErrors = true, true
				sub.SetOut(out)
				sub.SetErr(errOut)
				sub.SetArgs(shellArgs(args, from, verbose && args[0] != "check"))
				return sub.ExecuteContext(cmd.Context())
			})
		},
	}
	fromFlag(cmd, &from)
	cmd.Flags().BoolVarP(&verbose, "verbose", "v", false, "say what each operation cost")
	return cmd
}
