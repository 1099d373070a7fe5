package main

import (
	"slices"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/store"
)

// helpGroup is a heading of `rdmalab --help`, with the commands below it.
type helpGroup struct {
	title    string
	commands []string
}

// helpGroups lists the headings in their order. A command in no group is listed under the last
// heading.
func helpGroups() []helpGroup {
	return []helpGroup{
		{"A rack, up and down:", []string{"doctor", "up", "status", "exec", "env", "logs", "down", "compose", "image"}},
		{"Faults, and their end:", []string{"inject", "faults", "heal", "crash", "restart", "hang", "resume", "link", "partition"}},
		{"Look:", []string{"top", "capture", "dump", "counters", "profile", "switch", "bundle"}},
		{"Work:", slices.Concat([]string{"perf", "pingpong", "read"}, store.Names(nil), []string{"run", "experiment", "cni"})},
		{"Without a rack:", []string{"sim", "redn", "version", "completion", "help"}},
	}
}

func init() {
	cobra.EnableCommandSorting = false // a global setting of the library, which would sort commands by name
}

// groupHelp puts the commands of root under headings, in the order of helpGroups.
func groupHelp(root *cobra.Command, commands []*cobra.Command) []*cobra.Command {
	rank := make(map[string]int)
	list := helpGroups()
	for _, g := range list {
		root.AddGroup(&cobra.Group{ID: g.title, Title: g.title})
		for _, name := range g.commands {
			rank[name] = len(rank) + 1
			for _, c := range commands {
				if c.Name() == name {
					c.GroupID = g.title
				}
			}
		}
	}
	last := list[len(list)-1].title
	root.SetHelpCommandGroupID(last)
	root.SetCompletionCommandGroupID(last)
	sorted := slices.Clone(commands)
	slices.SortStableFunc(sorted, func(a, b *cobra.Command) int {
		return place(rank, a) - place(rank, b)
	})
	return sorted
}

// place returns the place of a command in the help. Commands without a heading come last, in their
// present order.
func place(rank map[string]int, c *cobra.Command) int {
	if n := rank[c.Name()]; n > 0 {
		return n
	}
	return len(rank) + 1
}
