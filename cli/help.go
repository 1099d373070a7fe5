package cli

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

type helpGroup struct {
	title    string
	commands []*cobra.Command
}

// lastGroup is the last heading. The library's commands help and completion are below it, too.
const lastGroup = "Without a rack:"

// helpGroups makes the commands that the help lists, in its order.
func helpGroups() []helpGroup {
	work := append([]*cobra.Command{withBundle(perfCmd()), pingpongCmd(), readCmd()}, storeCmds()...)
	return []helpGroup{
		{"A rack, up and down:", []*cobra.Command{
			doctorCmd(), upCmd(), applyCmd(), statusCmd(), execCmd(), envCmd(), logsCmd(), downCmd(), sliceCmd(), composeCmd(), imageCmd(),
		}},
		{"Faults, and their end:", []*cobra.Command{
			injectCmd(), faultsCmd(), healCmd(), crashCmd(), restartCmd(), hangCmd(), resumeCmd(), linkCmd(), partitionCmd(),
		}},
		{"Look:", append(append([]*cobra.Command{topCmd(), webCmd(), metricsCmd(), whyCmd()}, objectCmds()...),
			congestionCmd(), captureCmd(), dumpCmd(), countersCmd(), profileCmd(), switchCmd(), bundleCmd())},
		{"Work:", append(work, withBundle(runCmd()), experimentCmd(), exerciseCmd(), cniCmd())},
		{lastGroup, []*cobra.Command{simCmd(), rednCmd(), validateCmd(), graphCmd(), reportCmd(), versionCmd()}},
	}
}

// listedCommands makes the commands that users type: those of helpGroups, and retired ones.
func listedCommands() (list []*cobra.Command) {
	for _, g := range helpGroups() {
		for _, c := range g.commands {
			c.GroupID = g.title
		}
		list = append(list, g.commands...)
	}
	return append(list, manCmd(), retired("fig10", "cas-one-word --on rack --series as-is"))
}

// processes makes the hidden commands, which are the processes that rdmalab itself starts: daemons
// and what prepares them.
func processes() []*cobra.Command {
	return []*cobra.Command{hostCmd(), switchdCmd(), daemonsCmd(), nodeInitCmd(), execInitCmd(), timerCmd(), containerInitCmd(), containerHoldCmd(), watcherCmd()}
}

// called makes the commands that the command line needs: for a hidden command only the hidden ones.
// A rack starts two processes for each host, and making all commands takes an eighth of the time
// in which a process starts.
func called(args []string) []*cobra.Command {
	hidden := processes()
	if len(args) > 1 && slices.ContainsFunc(hidden, func(c *cobra.Command) bool { return c.Name() == args[1] }) {
		return hidden
	}
	return append(listedCommands(), hidden...)
}

func init() {
	cobra.EnableCommandSorting = false // a global setting of the library, which would sort commands by name
}

// addGroups gives root the headings of the commands, in the order of their first commands.
func addGroups(root *cobra.Command, commands []*cobra.Command) {
	for _, c := range slices.Concat(commands, []*cobra.Command{{GroupID: lastGroup}}) {
		if c.GroupID != "" && !root.ContainsGroup(c.GroupID) {
			root.AddGroup(&cobra.Group{ID: c.GroupID, Title: c.GroupID})
		}
	}
	root.SetHelpCommandGroupID(lastGroup)
	root.SetCompletionCommandGroupID(lastGroup)
}

// helpWidth is the largest number of columns of a line of help.
const helpWidth = 120

// listed returns the lines of a list entry of a help text. The text begins at column width+3 and is
// wrapped there. If name is longer than width, the text begins one column after the name.
func listed(name string, width int, text string) string {
	var out strings.Builder
	indent := "\n" + strings.Repeat(" ", width+3)
	line := "  " + name + strings.Repeat(" ", max(0, width-utf8.RuneCountInString(name)))
	used := utf8.RuneCountInString(line)
	out.WriteString(line)
	for _, w := range strings.Fields(text) {
		if n := utf8.RuneCountInString(w); used+1+n > helpWidth && used > width+2 {
			out.WriteString(indent + w)
			used = width + 3 + n
		} else {
			out.WriteString(" " + w)
			used += 1 + n
		}
	}
	return out.String() + "\n"
}

// listedAll returns the entries of a list of a help text; `of` returns the name and the text of one.
func listedAll[T any](width int, list []T, of func(one T) (name, text string)) string {
	var out strings.Builder
	for _, one := range list {
		name, text := of(one)
		out.WriteString(listed(name, width, text))
	}
	return out.String()
}

// plainUsage changes a usage template: descriptions of flags are wrapped, and a command whose usage
// line names its subcommands as COMMAND has no second line that says the same.
func plainUsage(template string) string {
	const line = "\n  {{.CommandPath}} [command]{{end}}"
	return strings.NewReplacer(
		"Flags.FlagUsages ", fmt.Sprintf("Flags.FlagUsagesWrapped %d ", helpWidth),
		"{{if .HasAvailableSubCommands}}"+line, `{{if and .HasAvailableSubCommands (ne .Use (printf "%s COMMAND" .Name))}}`+line,
	).Replace(template)
}
