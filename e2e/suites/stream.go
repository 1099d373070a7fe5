package main

import (
	"bufio"
	"encoding/json"
	"io"
)

// maxLine bounds a line of the stream in bytes: a test's output line is cut by go test well below
// it.
const maxLine = 16 << 20

// read adds the output of `go test -json` to t, line by line, until r ends.
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
