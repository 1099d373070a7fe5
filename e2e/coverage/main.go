// Command coverage prints what the tests have seen happen to queue pairs: for each type and state,
// each opcode received and each operation posted, and each fate. It reads the cells that test
// binaries with the build tag qpcover have recorded. It exits with 1 if no test has reached a cell
// that a test must reach, or if a test has reached an impossible one.
//
//	coverage [-full] FILE
package main

import (
	"bufio"
	"cmp"
	"flag"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/rdmalab/rdmalab/e2e/coverage/record"
)

func main() {
	full := flag.Bool("full", false, "print the reasons of cells that cannot be, cell by cell")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "usage: coverage [-full] FILE")
		os.Exit(2)
	}
	var reached map[cell]string
	f, err := os.Open(flag.Arg(0))
	if err == nil {
		reached, err = parse(f)
		err = cmp.Or(err, f.Close())
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	t := tally(sections(), reached)
	t.print(os.Stdout, *full)
	if len(t.missing)+len(t.impossible) > 0 {
		os.Exit(1)
	}
}

// cell is one cell of the tables.
type cell struct{ of, state, what, fate string }

// String describes the cell.
func (c cell) String() string {
	return fmt.Sprintf("%s in %s: %s: %s", c.of, c.state, c.what, c.fate)
}

// parse reads recorded cells. The result has, for each cell, the letters of the tests that reached
// it.
func parse(r io.Reader) (map[cell]string, error) {
	reached := map[cell]string{}
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		f := strings.Split(lines.Text(), record.Separator)
		if len(f) != 5 {
			return nil, fmt.Errorf("line %d has %d fields, want 5: %q", n, len(f), lines.Text())
		}
		c := cell{f[1], f[2], f[3], f[4]}
		if !strings.Contains(reached[c], f[0]) {
			reached[c] += f[0]
		}
	}
	return reached, lines.Err()
}
