package cli

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/sim/scenario"
)

// commandsPage returns the page that has the help of every command.
func commandsPage(t *testing.T) string {
	top := rootCmd(commands()...)
	var index, page strings.Builder
	for _, g := range top.Groups() {
		fmt.Fprintf(&index, "**%s**\n\n", strings.TrimSuffix(g.Title, ":"))
		for _, c := range top.Commands() {
			if c.GroupID != g.ID || !forPeople(c) {
				continue
			}
			fmt.Fprintf(&index, "- [`%s`](#rdmalab-%s): %s\n", c.Name(), c.Name(), c.Short)
			helpText(t, &page, c)
		}
		index.WriteByte('\n')
	}
	return index.String() + page.String()
}

// forPeople reports whether the reference has a command; it has neither hidden commands nor the
// command help.
func forPeople(c *cobra.Command) bool { return !c.Hidden && c.Name() != "help" }

// longHelp returns the description of a command. Those of experiments are made when help is printed.
func longHelp(t *testing.T, c *cobra.Command) string {
	c.SetOut(io.Discard)
	if err := c.Help(); err != nil {
		t.Fatal(err)
	}
	return c.Long
}

// helpText writes the help of a command and of its subcommands.
func helpText(t *testing.T, page *strings.Builder, c *cobra.Command) {
	if c.Short == "" {
		t.Errorf("%s has no short help", c.CommandPath())
	}
	level := strings.Repeat("#", min(4, 1+strings.Count(c.CommandPath(), " ")))
	fmt.Fprintf(page, "%s %s\n\n%s.\n\n", level, c.CommandPath(), c.Short)
	var text strings.Builder
	if c.Runnable() {
		fmt.Fprintf(&text, "%s\n", c.UseLine())
	}
	part := func(title, body string) {
		if body = strings.TrimRight(body, "\n "); body != "" {
			fmt.Fprintf(&text, "\n%s\n%s\n", title, body)
		}
	}
	if long := longHelp(t, c); long != "" {
		text.WriteString("\n" + strings.TrimSpace(long) + "\n")
	}
	part("Examples:", c.Example)
	part("Flags:", flagUsages(c.NonInheritedFlags()))
	fmt.Fprintf(page, "```text\n%s\n```\n\n", strings.TrimSpace(text.String()))
	if c.Name() == "completion" {
		return // the commands for all shells have the same help
	}
	for _, s := range c.Commands() {
		if forPeople(s) {
			helpText(t, page, s)
		}
	}
}

// shownCommand matches commands of this program in a page. The group is the text after the
// program's name, up to a character that ends a command in a shell.
var shownCommand = regexp.MustCompile("(?:^|[^A-Za-z0-9/_.\"-])(?:bin/)?rdmalab ([a-z][^`\"|;&<>\n#$…]*)")

// Commands and flags that the documents show exist.
func TestPagesShowCommandsThatExist(t *testing.T) {
	check := func(path string) {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, block := range append(codeSpan.FindAllString(string(text), -1), codeBlock.FindAllString(string(text), -1)...) {
			for _, m := range shownCommand.FindAllStringSubmatch(block, -1) {
				words := strings.Fields(m[1])
				// The plugin of kubectl has commands of its own (kube/kubectl).
				if strings.HasSuffix(strings.SplitAfter(block, m[0])[0], "kubectl"+m[0]) && words[0] == "evacuate" {
					continue
				}
				for i, w := range words { // the tutorial's store is a copy of the template
					if w == "mine" && filepath.Base(path) == "your-store.md" {
						words[i] = "template"
					}
				}
				if wrong := wrongCommand(words); wrong != "" {
					t.Errorf("%s: rdmalab %s: %s", path, m[1], wrong)
				}
			}
		}
	}
	for _, page := range []string{"README.md", "CONTRIBUTING.md", "ARCHITECTURE.md", "swordbox/HOLES.md", "rackfile/costs/README.md"} {
		check(filepath.Join(docRoot, page))
	}
	err := filepath.WalkDir(filepath.Join(docRoot, "docs"), func(path string, d os.DirEntry, err error) error {
		if err == nil && filepath.Ext(path) == ".md" && filepath.Base(path) != "commands.md" {
			check(path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

var (
	codeSpan  = regexp.MustCompile("`[^`\n]+`")
	codeBlock = regexp.MustCompile("(?ms)^```(?:sh|text|console)$.*?^```$")
)

// wrongCommand says which word of a command line does not exist; "": all do.
func wrongCommand(words []string) string {
	cmd, args, err := rootCmd(commands()...).Find(words)
	if err != nil || cmd.Parent() == nil {
		return "there is no such command"
	}
	for _, a := range args {
		if a == "--" {
			break // the rest is the command line of another program
		}
		name, _, _ := strings.Cut(strings.TrimPrefix(a, "--"), "=")
		if strings.HasPrefix(a, "--") && cmd.Flag(name) == nil && name != "help" {
			return cmd.CommandPath() + " has no flag " + a
		}
	}
	if cmd.Name() == "sim" && len(args) > 0 && simNames.MatchString(args[0]) {
		if _, err := scenario.Find(args[0]); err != nil {
			return err.Error()
		}
	}
	return ""
}

// simNames matches names of scenarios, but not placeholders.
var simNames = regexp.MustCompile(`^[a-z]+(-[a-z0-9]+)*$`)
