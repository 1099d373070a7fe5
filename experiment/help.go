package experiment

import (
	"embed"
	"strings"
	"text/template"
)

// helpFiles has the description of each experiment in a file of its name, as it is printed. Those in
// folder shared are parts of several descriptions: {{template "compared.md"}}.
//
//go:embed help
var helpFiles embed.FS

// Long returns the description of the experiment for a help text. In its file, {{range .Figures}}
// goes through the list Figures of Lists. It panics if there is no such file.
func (e *Experiment) Long() string {
	var lists map[string][]string
	if e.Lists != nil {
		lists = e.Lists()
	}
	texts := template.Must(template.New("").Option("missingkey=error").ParseFS(helpFiles, "help/"+e.Name+".md", "help/shared/*.md"))
	var out strings.Builder
	if err := texts.ExecuteTemplate(&out, e.Name+".md", lists); err != nil {
		panic(err)
	}
	return strings.TrimRight(out.String(), "\n")
}

// lines returns a line of a help text for each element of list. line gets its index and the element.
func lines[T any](list []T, line func(i int, x T) string) []string {
	out := make([]string, len(list))
	for i, x := range list {
		out[i] = line(i, x)
	}
	return out
}
