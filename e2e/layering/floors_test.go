package layering

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// floors are the top-level folders from top to bottom: the suites, the programs, the commands, the
// rack beside the experiments, the simulator, the switch, the stores, what they share, two designs
// on the NIC, the rack file, the NIC, and vocabulary. A package imports packages of its own folder
// and of folders below it. Folders on the same floor do not know each other.
var floors = [][]string{
	{"e2e"},
	{"cmd", "compose", "kube"},
	{"cli"},
	{"experiment", "topo"},
	{"sim"},
	{"swordbox"},
	{"clover", "fusee", "sherman"},
	{"store"},
	{"onerma", "redn"},
	{"rackfile"},
	{"softrnic"},
	{"nearest", "plot", "transitions", "units"},
}

// apart are packages that count to another folder than their own, each with the reason.
var apart = map[string]struct{ beside, why string }{
	"store/all":        {"cli", "the list of the stores that the program has: the only place that names all of them"},
	"store/superblock": {"units", "vocabulary that the layouts of the stores share"},
}

// place returns the folder to which a package counts, and the folder's floor; -1 if it has none.
func place(pkg string) (folder string, floor int) {
	folder, _, _ = strings.Cut(pkg, "/")
	if a, ok := apart[pkg]; ok {
		folder = a.beside
	}
	return folder, slices.IndexFunc(floors, func(f []string) bool { return slices.Contains(f, folder) })
}

// up says how an import breaks the order of the floors, or "".
func up(from, to string) string {
	folder, f := place(from)
	other, t := place(to)
	switch {
	case f < 0:
		return from + " is in no folder of floors: give its folder a place"
	case t < 0:
		return to + " is in no folder of floors: give its folder a place"
	case f < t, folder == other:
		return ""
	}
	return fmt.Sprintf("%s (floor %d, %s) imports %s, which is not below it (floor %d, %s)", from, f, folder, to, t, other)
}

// No arrow between top-level folders points up.
func TestFoldersImportDown(t *testing.T) {
	folders, packages := map[string]bool{}, map[string]bool{}
	for _, s := range sources(t) {
		if strings.HasSuffix(s.path, "_test.go") {
			continue // tests may import any package
		}
		packages[s.pkg] = true
		folder, _, _ := strings.Cut(s.pkg, "/")
		folders[folder] = true
		for _, i := range s.imports {
			if wrong := up(s.pkg, i); wrong != "" {
				t.Errorf("%s: %s", s.path, wrong)
			}
		}
	}
	if have, want := slices.Sorted(maps.Keys(folders)), slices.Sorted(slices.Values(slices.Concat(floors...))); !slices.Equal(have, want) {
		t.Errorf("the folders are %v, and floors has %v", have, want)
	}
	for pkg, a := range apart {
		if _, floor := place(pkg); !packages[pkg] || floor < 0 || a.why == "" {
			t.Errorf("apart: %s is not there, or has no floor, or no reason", pkg)
		}
	}
}

// Each arrow that points up is found.
func TestFloorsRefuse(t *testing.T) {
	for _, c := range []struct {
		from, to string
		ok       bool
	}{
		{"topo/hostd", "store/kv", true},
		{"store/kv", "topo/hostd", false},
		{"clover/meta", "sherman/layout", false},
		{"sherman", "clover/layout", false},
		{"store", "store/kv", true},
		{"store/kv", "store", true},
		{"cli", "store/all", true},
		{"store/all", "clover/plugin", true},
		{"store", "store/all", false},
		{"store/superblock", "store/kv", false},
		{"sherman/layout", "store/superblock", true},
		{"experiment", "topo/rack", false},
		{"softrnic", "else", false},
		{"else", "softrnic", false},
	} {
		if wrong := up(c.from, c.to); (wrong == "") != c.ok {
			t.Errorf("%s imports %s: %q", c.from, c.to, wrong)
		}
	}
}
