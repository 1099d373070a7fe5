package cli

import (
	"cmp"
	"embed"
	"errors"
	"io/fs"
	"maps"
	"strings"
	"text/template"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/scenario"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/swordbox/apps"
)

// helpFiles has a file of help texts for each command of rdmalab that is no store, and store.md with
// the texts that all stores share.
//
//go:embed help
var helpFiles embed.FS

// manual is the description of a command and its examples, as cobra prints them.
type manual struct{ long, example string }

// manuals reads the texts of commands from a Markdown document. A section has the text of the
// command in its title, like "# rdmalab switch rules": a block of code (```sh) has the examples, and
// all other lines are the description, as it is printed.
func manuals(markdown string) map[string]manual {
	texts := map[string]manual{}
	var title string
	var long, example strings.Builder
	end := func() {
		if title != "" {
			texts[title] = manual{strings.Trim(long.String(), "\n"), strings.TrimRight(example.String(), "\n")}
		}
		long.Reset()
		example.Reset()
	}
	code := false
	for line := range strings.Lines(markdown) {
		switch path, isTitle := strings.CutPrefix(line, "# "); {
		case code && line != "```\n":
			example.WriteString("  " + line)
		case code || line == "```sh\n":
			code = !code
		case isTitle:
			end()
			title = strings.TrimSpace(path)
		default:
			long.WriteString(line)
		}
	}
	end()
	return texts
}

// helpParts are the parts of help texts that the program computes: a text has {{workloads}}. Texts
// about a store also have its fields, like {{.Name}}.
var helpParts = template.FuncMap{
	"actions": func() string {
		return listedAll(10, rules.Definitions(), func(a rules.Definition) (name, text string) { return a.Name, a.Doc })
	},
	"errnos":      func() string { return strings.Join(fault.Errnos(), ", ") },
	"experiments": experimentList,
	"keys": func() string {
		return listedAll(22, rules.Fields(), func(f rules.Field) (name, text string) { return f.Key + "=" + f.Example, f.Doc })
	},
	"mixes":      func() string { return pairsList(8, mixes) },
	"ownKinds":   ownKinds,
	"scenarios":  scenarioList,
	"setups":     func() string { return pairsList(11, scenario.Setups()) },
	"shapeFlags": shapeFlags,
	"statuses":   func() string { return wrapped("STATUS is one of "+strings.Join(fault.StatusWords(), ", ")+".", 118) },
	"workloads": func() string {
		return listedAll(3, kv.Workloads(), func(w kv.Workload) (name, text string) { return w.Name, w.Doc })
	},
}

// shapeFlags returns the flags of a store's start that describe a new store, and the verb "is" or
// "are", as a part of a sentence.
func shapeFlags(s *store.Store) string {
	fs, names := pflag.NewFlagSet("", pflag.ContinueOnError), []string(nil)
	fs.SortFlags = false
	s.Commands.Start.New(fs)
	fs.VisitAll(func(f *pflag.Flag) {
		if f.Name != "fresh" {
			names = append(names, "--"+f.Name)
		}
	})
	last := len(names) - 1
	if last < 1 {
		return strings.Join(names, "") + " is"
	}
	return strings.Join(names[:last], ", ") + " and " + names[last] + " are"
}

// manualOf returns the help text of the command with this path, like "rdmalab switch rules". What a
// store does not say of a command is the same for all stores.
func manualOf(path string) manual {
	words := strings.Fields(path)
	name := words[min(1, len(words)-1)]
	if s, err := store.Find(name); err == nil {
		own, shared := manuals(s.Commands.Help)[path], manuals(helpFile("store"))[sharedPath(words)]
		return manual{filled(cmp.Or(own.long, shared.long), s), filled(cmp.Or(own.example, shared.example), s)}
	}
	texts := manuals(helpFile(name))
	if name == "switch" {
		for _, l := range apps.Listings() {
			maps.Copy(texts, manuals(l.Text))
		}
	}
	return manual{filled(texts[path].long, nil), filled(texts[path].example, nil)}
}

// sharedPath returns the title of the text that all stores share: "rdmalab STORE get" for "rdmalab
// clover get".
func sharedPath(words []string) string {
	return strings.Join(append([]string{words[0], "STORE"}, words[2:]...), " ")
}

// helpFile returns a file of help texts; "" if the program has none of this name.
func helpFile(name string) string {
	text, err := helpFiles.ReadFile("help/" + name + ".md")
	if !errors.Is(err, fs.ErrNotExist) {
		must(err)
	}
	return string(text)
}

// filled returns a text with its computed parts; s is the store that it is about.
func filled(text string, s *store.Store) string {
	if !strings.Contains(text, "{{") {
		return text
	}
	var out strings.Builder
	must(template.Must(template.New("").Funcs(helpParts).Parse(text)).Execute(&out, s))
	return out.String()
}

// document gives cmd its help text, if there is one. Texts are read when help is printed, because
// most commands run without.
func document(cmd *cobra.Command) {
	if text := manualOf(cmd.CommandPath()); text != (manual{}) {
		cmd.Long, cmd.Example = text.long, text.example
	}
}

// documentAll gives cmd and every command below it their help texts.
func documentAll(cmd *cobra.Command) {
	document(cmd)
	for _, c := range cmd.Commands() {
		documentAll(c)
	}
}

// documenting makes the help of root and of all commands below it begin with their texts.
func documenting(root *cobra.Command) {
	show := root.HelpFunc()
	root.SetHelpFunc(func(cmd *cobra.Command, args []string) {
		document(cmd)
		show(cmd, args)
	})
}
