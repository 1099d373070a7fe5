package cli

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// lister makes the list of words that a shell is offered for an argument or a flag.
type lister func(cmd *cobra.Command) []string

func words(list ...string) lister { return func(*cobra.Command) []string { return list } }

// arguments offers the words of lists[0] for the first argument, those of lists[1] for the second
// one, and so on, and no words for further arguments.
func arguments(lists ...lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, args []string, _ string) ([]string, cobra.ShellCompDirective) {
		if len(args) >= len(lists) {
			return nil, cobra.ShellCompDirectiveNoFileComp
		}
		return lists[len(args)](cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

// everyArgument offers the same words for every argument, or as value of a flag.
func everyArgument(list lister) cobra.CompletionFunc {
	return func(cmd *cobra.Command, _ []string, _ string) ([]string, cobra.ShellCompDirective) {
		return list(cmd), cobra.ShellCompDirectiveNoFileComp
	}
}

func complete(cmd *cobra.Command, flag string, list ...string) {
	must(cmd.RegisterFlagCompletionFunc(flag, everyArgument(words(list...))))
}

func completeHost(cmd *cobra.Command, flag string) {
	must(cmd.RegisterFlagCompletionFunc(flag, everyArgument(hostNames)))
}

// completeFlag completes values of an existing flag, also after a comma in a list.
func completeFlag(cmd *cobra.Command, flag string, values lister) {
	must(cmd.RegisterFlagCompletionFunc(flag, func(cmd *cobra.Command, _ []string, word string) ([]string, cobra.ShellCompDirective) {
		typed := word[:strings.LastIndexByte(word, ',')+1]
		offers := slices.Clone(values(cmd))
		for i := range offers {
			offers[i] = typed + offers[i]
		}
		return offers, cobra.ShellCompDirectiveNoFileComp
	}))
}

// hostNames lists the hosts of the rack, and further NICs of hosts; none if no rack is up.
func hostNames(cmd *cobra.Command) []string {
	r, _, err := rackOf(cmd)
	if err != nil {
		return nil
	}
	return r.NICNames()
}

// nodeNames lists the hosts and the switch.
func nodeNames(cmd *cobra.Command) []string { return append(hostNames(cmd), switchNames(cmd)...) }

func opcodeNames(*cobra.Command) []string {
	var names []string
	for op := range 1 << 8 {
		if op := wire.Opcode(op); op.Known() {
			names = append(names, op.String())
		}
	}
	return names
}
