package main

import (
	"fmt"
	"strings"
	"unicode/utf8"
)

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

// listedAll returns the entries of a list of a help text; of returns the name and the text of one.
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
