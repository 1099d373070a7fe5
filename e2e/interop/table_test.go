package interop_test

import (
	"fmt"
	"os"
	"slices"
	"strings"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"

	"github.com/rdmalab/rdmalab/e2e/fixture"

	"github.com/rdmalab/rdmalab/e2e/interop/ask"
)

// tableFile is the file to which a complete run writes the table.
const tableFile = "MATRIX.md"

// links are the links that a cell can cross, each a group of columns.
var links = []string{"IPv4", "IPv6", "link-local", "lossy", "uc", "ud"}

// titles explain the links.
var titles = map[string]string{
	"IPv4": "RC over IPv4", "IPv6": "RC over IPv6", "link-local": "RC over link-local addresses", "lossy": "RC over a lossy link",
	"uc": "UC over IPv4 and IPv6; the longest message has 3·MTU+5 bytes", "ud": "UD over IPv4 and IPv6; up to 4096 bytes",
}

// results are the outcomes of all specs, for the table.
var results []result

// kernel is the version of the guest's kernel.
var kernel string

// A complete run writes the table. It holds no times, so it changes only when an outcome does.
var _ = ReportAfterSuite("table", func(r Report) {
	if r.SuiteConfig.FocusStrings != nil || r.PreRunStats.SpecsThatWillRun != r.PreRunStats.TotalSpecs || len(results) == 0 || fixture.Through() != fixture.Forward {
		return
	}
	Expect(os.WriteFile(tableFile, []byte(matrix()), 0o644)).To(Succeed())
})

// matrix returns the text of the table.
func matrix() string {
	var b strings.Builder
	fmt.Fprintf(&b, "# Our NIC and rxe\n\nWritten by `make interop`. The peer is rdma_rxe of Linux %s. Every cell is one connection with messages of 0, 1, 3,\n"+
		"MTU-1, MTU, MTU+1, 4·MTU+5 and 65536 bytes (16 operations for atomics), across the rack's switch; \"lossy\" loses 10 %%,\n"+
		"duplicates 5 %% and reorders 5 %% of the packets in each direction. ✓: every completion, byte and atomic was right at\n"+
		"both ends, and every packet had the right ICRC.\n\n## Operations\n", kernel)
	for _, link := range links {
		var columns []int
		for _, r := range results {
			if r.Cell.Link == link && r.Cell.Trouble == "" && !slices.Contains(columns, r.Cell.MTU) {
				columns = append(columns, r.Cell.MTU)
			}
		}
		if len(columns) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n### %s\n\n| operation | from |", titles[link])
		for _, mtu := range columns {
			fmt.Fprintf(&b, " MTU %d |", mtu)
		}
		fmt.Fprintf(&b, "\n| --- | --- |%s\n", strings.Repeat(" --- |", len(columns)))
		for _, op := range operations {
			if !slices.ContainsFunc(results, func(r result) bool { return r.Cell.Link == link && r.Cell.Op == op }) {
				continue
			}
			for _, ours := range []bool{true, false} {
				fmt.Fprintf(&b, "| %s | %s |", op, initiator(ours))
				for _, mtu := range columns {
					fmt.Fprintf(&b, " %s |", verdict(func(c *cell) bool {
						return c.Link == link && c.Trouble == "" && c.Op == op && c.Ours == ours && c.MTU == mtu
					}))
				}
				b.WriteString("\n")
			}
		}
	}
	b.WriteString(varied())
	b.WriteString("\n## Mistakes\n\nThe status is the initiator's; 0 is success.\n\n| mistake | operation | from | status | |\n| --- | --- | --- | --- | --- |\n")
	for _, r := range results {
		if c := r.Cell; c.Trouble != "" {
			fmt.Fprintf(&b, "| %s | %s | %s | %d | %s |\n", c.Trouble, c.Op, initiator(c.Ours), c.Want, mark(r.Wrong == ""))
		}
	}
	return b.String() + programTable() + deathTable()
}

// varied returns the table of the variations.
func varied() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n### Variations of RC over a lossy link, %d queue pairs at the same time\n\n| variation | from |", ask.VerbsPorts)
	for _, op := range operations {
		fmt.Fprintf(&b, " %s |", op)
	}
	fmt.Fprintf(&b, "\n| --- | --- |%s\n", strings.Repeat(" --- |", len(operations)))
	var done []string
	for _, c := range variations() {
		if slices.Contains(done, c.What) {
			continue
		}
		done = append(done, c.What)
		for _, ours := range []bool{true, false} {
			fmt.Fprintf(&b, "| %s | %s |", c.What, initiator(ours))
			for _, op := range operations {
				fmt.Fprintf(&b, " %s |", verdict(func(r *cell) bool { return r.Link == "varied" && r.What == c.What && r.Op == op && r.Ours == ours }))
			}
			b.WriteString("\n")
		}
	}
	return b.String()
}

func initiator(ours bool) string {
	if ours {
		return "ours"
	}
	return "rxe"
}

func verdict(match func(*cell) bool) string {
	text := ""
	for _, r := range results {
		if match(&r.Cell) { // the mark of several rows is good only if all are
			text = mark(r.Wrong == "" && text != mark(false))
		}
	}
	return text
}

func mark(ok bool) string {
	if ok {
		return "✓"
	}
	return "✗"
}
