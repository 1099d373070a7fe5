// Command report reads the output of `go test -json` from standard input and prints a summary: a
// line for each package, the whole output of failed tests, every skip with its reason, and a last
// line "N passed, N failed, N skipped", which counts tests and Ginkgo specs. It fails if a test
// failed, if no test ran, or if more tests were skipped than -skips allows; skips whose reason
// matches -expect do not count.
package main

import (
	"bufio"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os"
	"regexp"
)

func main() {
	skips := flag.Int("skips", -1, "fail when more than this many tests and specs were skipped; -1 allows any number")
	expect := flag.String("expect", "^$", "regular expression of reasons for which a skip is expected")
	quiet := flag.Bool("quiet", false, "print no line for a package that passed")
	flag.Parse()
	reason, err := regexp.Compile(*expect)
	if err != nil {
		fmt.Fprintln(os.Stderr, "report: -expect:", err)
		os.Exit(2)
	}
	t := newTally(os.Stdout, *quiet, reason)
	if err := read(os.Stdin, t); err != nil {
		fmt.Fprintln(os.Stderr, "report:", err)
		os.Exit(2)
	}
	if !t.close(*skips) {
		os.Exit(1)
	}
}

// maxLine bounds a line of the stream in bytes: a test's output line is cut by go test well below
// it.
const maxLine = 16 << 20

func read(r io.Reader, t *tally) error {
	sc := bufio.NewScanner(r)
	sc.Buffer(make([]byte, 64<<10), maxLine)
	for sc.Scan() {
		var e event
		if json.Unmarshal(sc.Bytes(), &e) != nil {
			t.message(sc.Text())
			continue
		}
		t.add(e)
	}
	return sc.Err()
}
