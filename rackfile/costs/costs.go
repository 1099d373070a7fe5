// Package costs has the cost files that are built into the program.
package costs

import (
	"embed"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/cost"
)

//go:embed *.yaml
var files embed.FS

const suffix = ".yaml"

// Names lists the built-in models.
func Names() []string {
	entries, err := files.ReadDir(".")
	if err != nil {
		panic("costs: the embedded files are gone: " + err.Error())
	}
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, strings.TrimSuffix(e.Name(), suffix))
	}
	slices.Sort(names)
	return names
}

// Text returns the file of a built-in model, which includes the sources of its numbers.
func Text(name string) ([]byte, error) {
	if !slices.Contains(Names(), name) {
		return nil, fmt.Errorf("no built-in cost model is called %.40q; there are %s", name, strings.Join(Names(), ", "))
	}
	return files.ReadFile(name + suffix)
}

func Builtin(name string) (*cost.Model, error) {
	text, err := Text(name)
	if err != nil {
		return nil, err
	}
	// A built-in file that is the base of another one has no base itself, so the recursion ends.
	return rackfile.ParseCost(name+suffix+" (built in)", text, Builtin)
}

// Parse parses a cost file, which may name a built-in model as its base. name is the name of the
// file in error messages.
func Parse(name string, data []byte) (*cost.Model, error) {
	return rackfile.ParseCost(name, data, Builtin)
}
