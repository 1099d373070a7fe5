package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/swordbox/apps"
)

func TestManuals(t *testing.T) {
	got := manuals("lost\n\n# rdmalab up\n\nup brings\nit up.\n\n  a  # b\n\n```sh\nrdmalab up\n# not a title\n```\n# rdmalab down\nGone.\n# rdmalab empty\n")
	want := map[string]manual{
		"rdmalab up":    {"up brings\nit up.\n\n  a  # b", "  rdmalab up\n  # not a title"},
		"rdmalab down":  {"Gone.", ""},
		"rdmalab empty": {},
	}
	if !maps.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// everyPath calls f for every command of the tree, also for hidden ones.
func everyPath(cmd *cobra.Command, f func(c *cobra.Command)) {
	f(cmd)
	for _, c := range cmd.Commands() {
		everyPath(c, f)
	}
}

// undocumented lists the commands that lack a description or, if they have no subcommands, an example. Experiments make their
// descriptions themselves, and the library those of help and of completion for most shells.
func undocumented(root *cobra.Command) (paths []string) {
	documentAll(root)
	everyPath(root, func(c *cobra.Command) {
		if c.Hidden || c.Name() == "help" || c.HasParent() && slices.Contains([]string{"completion", "experiment"}, c.Parent().Name()) {
			return
		}
		if c.Long == "" || c.Example == "" && !c.HasSubCommands() {
			paths = append(paths, c.CommandPath())
		}
	})
	return paths
}

// unused lists the titles that are those of no command.
func unused(root *cobra.Command, titles []string) []string {
	used := map[string]bool{}
	everyPath(root, func(c *cobra.Command) {
		path := c.CommandPath()
		used[path] = true
		words := strings.Fields(path)
		if len(words) < 2 {
			return
		}
		s, err := store.Find(words[1])
		if err != nil {
			return
		}
		own := manuals(s.Commands.Help)[path]
		used[sharedPath(words)] = used[sharedPath(words)] || own.long == "" || own.example == ""
	})
	return slices.DeleteFunc(slices.Clone(titles), func(title string) bool { return used[title] })
}

// allTitles returns the titles of all texts: of the program's files, of stores, and of what the switch lists. A text is only
// found if its title has the name of its file, or of its store.
func allTitles(t *testing.T) (titles []string) {
	add := func(name, markdown string) {
		for title := range manuals(markdown) {
			if words := strings.Fields(title); words[0] != "rdmalab" || words[min(1, len(words)-1)] != name {
				t.Errorf("the title %q is not that of a command %s", title, name)
			}
			titles = append(titles, title)
		}
	}
	files, err := helpFiles.ReadDir("help")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		name := strings.TrimSuffix(f.Name(), ".md")
		add(either(name == "store", "STORE", name), helpFile(name))
	}
	for _, s := range store.All() {
		add(s.Name, s.Commands.Help)
	}
	for _, l := range apps.Listings() {
		add("switch", l.Text)
	}
	return titles
}

// Every command has a description and an example, and every text a command.
func TestEveryManualHasItsCommand(t *testing.T) {
	root := rootCmd(commands()...)
	root.InitDefaultHelpCmd()
	if miss := undocumented(root); len(miss) > 0 {
		t.Errorf("no description or no example in cli/help, or in the help of the store: %q", miss)
	}
	titles := allTitles(t)
	if more := unused(root, titles); len(more) > 0 || len(titles) < 100 {
		t.Errorf("of %d texts these are of no command: %q", len(titles), more)
	}
}

// A command without a text is found, and a text without a command.
func TestMissingAndUnusedManualsAreFound(t *testing.T) {
	root := rootCmd(append(commands(), &cobra.Command{Use: "bare", Run: func(*cobra.Command, []string) {}})...)
	if got := undocumented(root); !slices.Equal(got, []string{"rdmalab bare"}) {
		t.Errorf("missing: %q", got)
	}
	got := unused(root, []string{"rdmalab", "rdmalab up", "rdmalab upward", "rdmalab STORE get", "rdmalab STORE calls", "rdmalab clover load", "rdmalab sherman calls"})
	if want := []string{"rdmalab upward", "rdmalab STORE calls", "rdmalab sherman calls"}; !slices.Equal(got, want) {
		t.Errorf("unused: %q, want %q", got, want)
	}
}
