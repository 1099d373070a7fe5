package layering

import (
	"flag"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// write makes the tests update the generated parts of files instead of comparing them.
var write = flag.Bool("write", false, "bring the lists in .golangci.yml and e2e/suites/virtual.txt up to date with the table")

const (
	listBegins  = "            # sans-I/O packages of e2e/layering/table_test.go; `go test ./e2e/layering -write` writes them\n"
	listEnds    = "            # the end of the list\n"
	clockBegins = "        path-except: ^("
	clockEnds   = ")/[^/]*\\.go$ # written likewise: packages that may read no clock\n"
)

// between returns text with the part between begin and end replaced; ok is false if text lacks one
// of them.
func between(text, begin, end, with string) (out string, ok bool) {
	head, rest, ok := strings.Cut(text, begin)
	if !ok {
		return text, false
	}
	_, tail, ok := strings.Cut(rest, end)
	return head + begin + with + end + tail, ok
}

// linted returns the configuration of the linters with its lists made from the table.
func linted(config string, table map[string]row) (out string, ok bool) {
	var pure strings.Builder
	var timeless []string
	for _, pkg := range slices.Sorted(maps.Keys(table)) {
		if table[pkg].sansIO() {
			pure.WriteString("            - \"**/" + pkg + "/*.go\"\n")
		}
		if table[pkg].virtualTime() {
			timeless = append(timeless, pkg)
		}
	}
	config, first := between(config, listBegins, listEnds, pure.String())
	config, second := between(config, clockBegins, clockEnds, strings.Join(timeless, "|"))
	return config, first && second
}

func TestLintersKnowTheTable(t *testing.T) {
	upToDate(t, ".golangci.yml", func(config string) (string, bool) { return linted(config, table) })
}

// upToDate compares a file with what made makes of its text, or writes that with -write. made
// returns false if the text has no longer the lines that mark the lists of packages.
func upToDate(t *testing.T, file string, made func(text string) (string, bool)) {
	t.Helper()
	text := string(read(t, file))
	want, ok := made(text)
	switch {
	case !ok:
		t.Fatalf("%s has lost the lines between which the lists of packages stand", file)
	case want == text:
	case *write:
		if err := os.WriteFile(filepath.Join("..", "..", file), []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	default:
		t.Errorf("%s does not list the packages of the table; run: go test ./e2e/layering -write", file)
	}
}

// harmless are packages with I/O that a test in virtual time may import: those with sockets whose
// interfaces packages in virtual time implement, and tools of tests.
var harmless = []string{"softrnic/rdmacm", "store/memcached", "e2e/golden", "e2e/kvtest", "e2e/verbstest"}

// virtual lists the packages whose code and tests run in virtual time. The race detector makes them
// about fifteen times as slow, and finds nothing in them: the simulator's threads are coroutines,
// of which one runs at a time, and each switch between two of them is ordered for the detector. So
// a package with locks is among them, too, unless its own tests start goroutines: its locks are
// checked where goroutines use it, in the tests of packages that are not listed (topo/hostd runs
// the stores). `make race` runs all of them with the detector. all are the module's files.
func virtual(table map[string]row, all []source) []string {
	inside := func(pkg string) bool {
		r := table[pkg]
		return r.virtualTime() || r.touches == simulation
	}
	locks, edges := make(map[string]bool), make(map[string]bool)
	for _, s := range all {
		locks[s.pkg] = locks[s.pkg] || s.locks && !strings.HasSuffix(s.path, "_test.go") && table[s.pkg].touches != simulation
	}
	for _, s := range all {
		if !strings.HasSuffix(s.path, "_test.go") {
			continue
		}
		if locks[s.pkg] && s.starts {
			edges[s.pkg] = true // several goroutines use it
		}
		for _, i := range s.imports {
			if table[i].level >= 4 && !inside(i) && !slices.Contains(harmless, i) {
				edges[s.pkg] = true
			}
		}
	}
	var out []string
	for _, pkg := range slices.Sorted(maps.Keys(table)) {
		if inside(pkg) && !edges[pkg] {
			out = append(out, pkg)
		}
	}
	return out
}

func TestSuitesKnowWhatIsVirtual(t *testing.T) {
	upToDate(t, "e2e/suites/virtual.txt", func(string) (string, bool) {
		return strings.Join(virtual(table, sources(t)), "\n") + "\n", true
	})
}

// A package keeps the race detector if its tests open sockets, or if it has locks and they start
// goroutines.
func TestVirtualIsWithoutEdges(t *testing.T) {
	h := map[string]row{"pure": {level: 1}, "mixed": {level: 1}, "runs": {level: 5, touches: simulation}, "socket": {level: 4}, "shared": {level: 1, touches: noClock}, "locked": {level: 1, touches: noClock}}
	all := []source{
		{pkg: "mixed", path: "mixed/a_test.go", imports: []string{"socket"}},
		{pkg: "runs", path: "runs/a_test.go", imports: []string{"pure"}},
		{pkg: "runs", path: "runs/a.go", imports: []string{"socket"}, locks: true},
		{pkg: "shared", path: "shared/a_test.go", starts: true},
		{pkg: "shared", path: "shared/a.go", locks: true},
		{pkg: "locked", path: "locked/a.go", locks: true},
		{pkg: "locked", path: "locked/a_test.go"},
		{pkg: "pure", path: "pure/a_test.go", starts: true},
	}
	if got := strings.Join(virtual(h, all), " "); got != "locked pure runs" {
		t.Errorf("virtual: %q", got)
	}
}

// A package that becomes sans-I/O, or stops being so, changes both lists.
func TestLintersFollowTheTable(t *testing.T) {
	config := "x\n" + listBegins + listEnds + "y\n" + clockBegins + clockEnds + "z\n"
	h := map[string]row{"low": {level: 0}, "edge": {level: 4}, "late": {level: 5, touches: nothing}, "store": {level: 5, touches: noClock}}
	got, ok := linted(config, h)
	want := "x\n" + listBegins + "            - \"**/late/*.go\"\n            - \"**/low/*.go\"\n" + listEnds +
		"y\n" + clockBegins + "late|low|store" + clockEnds + "z\n"
	if !ok || got != want {
		t.Errorf("got %q, %v; want %q", got, ok, want)
	}
	if _, ok := linted("no list", h); ok {
		t.Error("a configuration without lists is taken")
	}
}
