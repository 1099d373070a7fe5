// Package record writes down which cells of the coverage table a test binary reaches. Test files
// with the build tag qpcover set transport.Observer to a function that Cells returns; see make
// coverage.
package record

import (
	"os"
	"strings"
	"sync"
)

// Variable names the file to append to. Without it nothing is recorded.
const Variable = "RDMALAB_COVERAGE"

// Separator stands between the fields of a line: source, type, state, what, fate.
const Separator = "\t"

// Cells returns an observer that appends each cell once. The source is one letter for the tests
// that reach it. The observer may be used by several goroutines; it panics when the file cannot be
// written, because cells would be missing in the table.
func Cells(source string) func(of, state, what, fate string) {
	name := os.Getenv(Variable)
	if name == "" {
		return nil
	}
	var mu sync.Mutex // guards seen
	seen := map[[4]string]bool{}
	return func(of, state, what, fate string) {
		mu.Lock()
		defer mu.Unlock()
		cell := [4]string{of, state, what, fate}
		if seen[cell] {
			return
		}
		seen[cell] = true
		line := strings.Join(append([]string{source}, cell[:]...), Separator) + "\n"
		if err := appendTo(name, line); err != nil {
			panic("coverage: " + err.Error())
		}
	}
}

// appendTo opens the file each time: cells are few, and several binaries write at once.
func appendTo(name, line string) error {
	f, err := os.OpenFile(name, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.WriteString(line); err != nil {
		_ = f.Close() // the error of the write is returned
		return err
	}
	return f.Close()
}
