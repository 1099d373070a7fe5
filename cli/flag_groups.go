package cli

import (
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// flagGroup is the key of a flag's annotation. Its value is the heading of the flag in the help.
const flagGroup = "group"

// groupFlags puts flags of a command under a heading in the help. The headings are in the order of
// the calls. Flags without a heading come last.
func groupFlags(cmd *cobra.Command, title string, names ...string) {
	fs := cmd.Flags()
	fs.SortFlags = false
	for _, name := range names {
		f := fs.Lookup(name) // if there is no such flag, every test of the help fails here
		if f.Annotations == nil {
			f.Annotations = map[string][]string{}
		}
		f.Annotations[flagGroup] = []string{title}
	}
	cobra.AddTemplateFunc("flagUsages", flagUsages)
	cmd.SetUsageTemplate(plainUsage(strings.Replace(cmd.UsageTemplate(), "Flags:\n{{.LocalFlags.FlagUsages", "Flags:\n{{.LocalFlags | flagUsages", 1)))
}

func flagUsages(fs *pflag.FlagSet) string {
	var titles []string
	groups := map[string]*pflag.FlagSet{}
	fs.VisitAll(func(f *pflag.Flag) {
		title := ""
		if g := f.Annotations[flagGroup]; len(g) > 0 {
			title = g[0]
		}
		if groups[title] == nil {
			groups[title] = pflag.NewFlagSet("", pflag.ContinueOnError)
			groups[title].SortFlags = fs.SortFlags
			titles = append(titles, title)
		}
		groups[title].AddFlag(f)
	})
	if len(titles) < 2 {
		return fs.FlagUsagesWrapped(helpWidth)
	}
	var out strings.Builder
	for _, t := range titles {
		if t != "" {
			out.WriteString("  " + t + ":\n" + groups[t].FlagUsagesWrapped(helpWidth))
		}
	}
	if rest := groups[""]; rest != nil {
		out.WriteString("  other:\n" + rest.FlagUsagesWrapped(helpWidth))
	}
	return out.String()
}
