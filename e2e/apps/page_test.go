package apps

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"strings"
	"testing"

	. "github.com/onsi/ginkgo/v2"
	"github.com/onsi/ginkgo/v2/types"
	. "github.com/onsi/gomega"
)

var write = flag.Bool("write", false, "write the results of this run into the page")

// page is the page that -write writes.
const page = "../../docs/reference/programs.md"

// cells are the results of this run, by program and way.
var cells = map[[2]string]string{}

// note keeps a result.
func note(a *app, w *way, result string) { cells[[2]string{a.name, w.name}] = result }

// outcome is the text of a cell. lost and moved are packets while the program ran.
func outcome(r SpecReport, w *way, lost, moved uint64) string {
	switch {
	case r.State == types.SpecStateSkipped:
		return "not run"
	case r.Failed():
		return "**fails**"
	}
	var more []string
	if w.loss || lost > 0 {
		more = append(more, fmt.Sprintf("%d lost", lost))
	}
	if moved > 0 {
		more = append(more, fmt.Sprintf("%d moved", moved))
	}
	if len(more) == 0 {
		return "yes"
	}
	return "yes (" + strings.Join(more, ", ") + ")"
}

// cellOf is what the page shows of a program in a way; reasons has the reasons for footnotes so far.
func cellOf(a *app, w *way, results map[[2]string]string, reasons *[]string) string {
	switch why := a.skips(w); why {
	case "":
	case notTried:
		return why
	default:
		*reasons = append(*reasons, fmt.Sprintf("%s, %s: %s.", a.name, w.heading, why))
		return "no"
	}
	result := results[[2]string{a.name, w.name}]
	if w.moves && a.apart && strings.HasPrefix(result, "yes") {
		return result + " ¹"
	}
	return result
}

// render returns the page.
func render(results map[[2]string]string, version func(pkg string) string) string {
	var b strings.Builder
	b.WriteString(`# Programs that run

Written by ` + "`make e2e-apps`" + `, which runs them all, from Debian's packages, unmodified, with default settings where none are named: the client on cn0 of a
rack, the server on another host. "yes": each end that is not killed at the end, as servers that serve on are, exited with 0, and the data, or their number, were right. CI runs most of them on
each change. [How to run your own](../guide/programs.md); ` + "`make e2e-verbs`" + ` runs the programs of rdma-core and perftest in more ways.

| program | version | what is run |`)
	for i := range ways {
		b.WriteString(" " + ways[i].heading + " |")
	}
	b.WriteString("\n| --- | --- | --- |" + strings.Repeat(" --- |", len(ways)) + "\n")
	var reasons []string
	for i := range apps {
		a := &apps[i]
		fmt.Fprintf(&b, "| %s | %s | %s |", a.name, version(a.pkg), a.what)
		for j := range ways {
			b.WriteString(" " + cellOf(a, &ways[j], results, &reasons) + " |")
		}
		b.WriteString("\n")
	}
	b.WriteString("\n¹ Requests on memory of the program's own cannot be moved to the connections of the switch, which are in the protection domain of the memory\n" +
		"service. The server is on a host without a rule, and the switch moves another host's WRITEs meanwhile.\n\nThe columns:\n\n")
	for i := range ways {
		fmt.Fprintf(&b, "- %s: %s\n", ways[i].heading, ways[i].explain)
	}
	b.WriteString("\nThose that say no:\n\n")
	for _, why := range reasons {
		b.WriteString("- " + why + "\n")
	}
	b.WriteString("\n## What does not run, or could not be tried\n\n| program | why |\n| --- | --- |\n")
	for _, m := range missing {
		fmt.Fprintf(&b, "| %s | %s |\n", m[0], m[1])
	}
	return b.String()
}

// debian returns the version of a package that is installed.
func debian(pkg string) string {
	out, err := exec.Command("dpkg-query", "-W", "-f", "${Version}", pkg).Output()
	if err != nil {
		return "not installed"
	}
	version, _, _ := strings.Cut(string(out), "-")
	return strings.TrimPrefix(strings.SplitN(version, "+", 2)[0], "1:")
}

var _ = ReportAfterSuite("the page", func(Report) {
	if !*write {
		return
	}
	text, err := os.ReadFile(page)
	Expect(err).NotTo(HaveOccurred())
	results, _ := parse(string(text))
	maps.Copy(results, cells)
	Expect(os.WriteFile(page, []byte(render(results, debian)), 0o644)).To(Succeed())
})

// parse reads the results and the versions that a page shows.
func parse(text string) (results map[[2]string]string, versions map[string]string) {
	results, versions = map[[2]string]string{}, map[string]string{}
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimSuffix(strings.TrimPrefix(strings.TrimSpace(line), "| "), " |"), " | ")
		for i := range apps {
			if a := &apps[i]; a.name == fields[0] && len(fields) > 3 {
				versions[a.pkg] = fields[1]
				for j := range min(len(ways), len(fields)-3) { // a new way is the last one
					results[[2]string{a.name, ways[j].name}] = strings.TrimSuffix(fields[3+j], " ¹")
				}
			}
		}
	}
	return results, versions
}

// TestPageIsOfThisTable compares the page with what this table would make of its results.
func TestPageIsOfThisTable(t *testing.T) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	results, versions := parse(string(text))
	if want := render(results, func(pkg string) string { return versions[pkg] }); string(text) != want {
		t.Errorf("%s is of another table: run make e2e-apps WRITE=yes", page)
	}
	for i := range apps {
		for j := range ways {
			a, w := &apps[i], &ways[j]
			if got := results[[2]string{a.name, w.name}]; a.skips(w) == "" && !strings.HasPrefix(got, "yes") {
				t.Errorf("%s, %s: %q", a.name, w.name, got)
			}
		}
	}
}
