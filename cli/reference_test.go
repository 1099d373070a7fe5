package cli

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// docsMode says what TestReference does with the generated parts of the pages under docs: it only
// generates them (""), compares them with the committed pages (check), or writes them (write).
// `make docs` writes, `make check` compares.
var docsMode = flag.String("docs", "", "generated parts of docs: check or write")

// docRoot is the root folder of the module.
const docRoot = ".."

// generated has the functions that make parts of pages from the code. In a page, two lines mark the
// place of a part:
//
//	<!-- begin NAME -->
//	<!-- end NAME -->
var generated = map[string]func(t *testing.T) string{
	"commands":         commandsPage,
	"rack":             rackTable("rack"),
	"fabric":           rackTable("fabric"),
	"machines":         rackTable("machines"),
	"onerma":           rackTable("onerma"),
	"congestion":       rackTable("congestion"),
	"switch":           rackTable("switch"),
	"rules":            rulesTable,
	"ports":            rackTable("ports"),
	"dscp":             rackTable("dscp"),
	"queues":           rackTable("queues"),
	"3":                rackTable("3"),
	"ecn":              rackTable("ecn"),
	"watchdog":         rackTable("watchdog"),
	"hosts":            rackTable("hosts"),
	"nics":             rackTable("nics"),
	"devices":          rackTable("devices"),
	"quota":            rackTable("quota"),
	"faults":           rackTable("faults"),
	"match":            rackTable("match"),
	"nic-counters":     nicCounters,
	"port-counters":    portCounters,
	"refusal-counters": refusalCounters,
	"switch-counters":  programCounters,
	"fault-kinds":      faultKinds,
	"fault-classes":    faultClasses,
	"fault-limits":     faultLimits,
	"fault-rule":       faultRule,
	"packages":         packagesTable,
	"reasons":          reasonsTable,
}

// The generated parts of the documents are up to date.
func TestReference(t *testing.T) {
	t.Setenv(rackEnv, "") // the help shows it as the default of --rack
	for section := range rackKeys(t) {
		if generated[section] == nil {
			t.Errorf("the keys of %s in a rack file are in no document", section)
		}
	}
	parts := map[string]string{}
	for name, make := range generated {
		if parts[name] = strings.TrimSpace(make(t)); parts[name] == "" {
			t.Errorf("part %s is empty", name)
		}
	}
	used := map[string]bool{}
	err := filepath.WalkDir(filepath.Join(docRoot, "docs"), func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() || filepath.Ext(path) != ".md" {
			return err
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		page, err := fillParts(string(text), parts, used)
		switch {
		case err != nil:
			t.Errorf("%s: %v", path, err)
		case page == string(text), *docsMode == "":
		case *docsMode == "write":
			return os.WriteFile(path, []byte(page), 0o644)
		default:
			t.Errorf("%s is stale: run `make docs`", strings.TrimPrefix(path, docRoot+"/"))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for name := range generated {
		if !used[name] {
			t.Errorf("no page has the part %s", name)
		}
	}
	compareFile(t, filepath.Join(docRoot, "docs/reference/rack-file.schema.json"), rackfile.Schema())
	for name, args := range pictures {
		comparePicture(t, filepath.Join(docRoot, "docs", name), args)
	}
}

// compareFile compares a generated file, or writes it.
func compareFile(t *testing.T, path string, want []byte) {
	t.Helper()
	have, err := os.ReadFile(path)
	switch {
	case err == nil && bytes.Equal(have, want), *docsMode == "":
	case *docsMode == "write":
		if err := os.WriteFile(path, want, 0o644); err != nil {
			t.Error(err)
		}
	default:
		t.Errorf("%s is stale: run `make docs`", strings.TrimPrefix(path, docRoot+"/"))
	}
}

// pictures are the files under docs that commands write; -w and the file are added to the arguments.
var pictures = map[string][]string{
	"guide/first-nic-program.svg": {"redn", "trace", "--x", "5", "--y", "5"},
	"pictures/ladder.svg":         {"dump", "--ladder", docRoot + "/docs/pictures/lost.pcapng"},
	"pictures/rack.svg":           {"graph"},
}

// comparePicture fails if a command would write another picture than the committed one. In docsMode
// write, it writes the picture.
func comparePicture(t *testing.T, path string, args []string) {
	t.Helper()
	to := path
	if *docsMode != "write" {
		to = filepath.Join(t.TempDir(), "picture.svg")
	}
	root := rootCmd(rednCmd(), dumpCmd(), graphCmd())
	root.SetOut(io.Discard)
	root.SetErr(io.Discard)
	root.SetArgs(append(slices.Clone(args), "-w", to))
	if err := root.Execute(); err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(to)
	if err != nil {
		t.Fatal(err)
	}
	if want, err := os.ReadFile(path); err != nil || !bytes.Equal(got, want) {
		t.Errorf("%s is stale (%v): run `make docs`", strings.TrimPrefix(path, docRoot+"/"), err)
	}
}

var partMark = regexp.MustCompile(`(?m)^<!-- begin ([a-z0-9-]+) -->\n`)

// fillParts puts the generated parts into a page. It adds the names of the parts that the page has
// to used.
func fillParts(page string, parts map[string]string, used map[string]bool) (string, error) {
	var out strings.Builder
	for {
		at := partMark.FindStringSubmatchIndex(page)
		if at == nil {
			out.WriteString(page)
			return out.String(), nil
		}
		name := page[at[2]:at[3]]
		end := fmt.Sprintf("<!-- end %s -->\n", name)
		_, rest, found := strings.Cut(page[at[1]:], end)
		text, known := parts[name]
		if !found || !known {
			return "", fmt.Errorf("part %q: there is no such part, or the line %q is missing", name, strings.TrimSpace(end))
		}
		used[name] = true
		out.WriteString(page[:at[1]] + "\n" + text + "\n\n" + end)
		page = rest
	}
}

// docCell converts a text for a cell of a table.
func docCell(s string) string {
	return strings.ReplaceAll(strings.Join(strings.Fields(s), " "), "|", `\|`)
}

// docRow returns a line of a table.
func docRow(cells ...string) string {
	for i := range cells {
		cells[i] = docCell(cells[i])
	}
	return "| " + strings.Join(cells, " | ") + " |\n"
}

// docHead returns the first two lines of a table.
func docHead(cells ...string) string {
	return docRow(cells...) + "|" + strings.Repeat(" --- |", len(cells)) + "\n"
}
