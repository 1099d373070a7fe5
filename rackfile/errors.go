package rackfile

import (
	"fmt"
	"strings"
)

// maxErrors bounds how many mistakes of one file are reported.
const maxErrors = 10

// Error is one mistake in a rack file or cost file.
type Error struct {
	// File is the name that was passed to ParseFile. Line and Col count from 1; both are 0 if the
	// mistake concerns the file as a whole.
	File      string
	Line, Col int
	Msg       string
}

func (e *Error) Error() string {
	if e.Line == 0 {
		return fmt.Sprintf("%s: %s", e.File, e.Msg)
	}
	return fmt.Sprintf("%s:%d:%d: %s", e.File, e.Line, e.Col, e.Msg)
}

// Errors are the mistakes of one file, in the order in which they were found.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i := range e {
		lines[i] = e[i].Error()
	}
	return strings.Join(lines, "\n")
}

func (e Errors) Unwrap() []error {
	errs := make([]error, len(e))
	for i := range e {
		errs[i] = e[i]
	}
	return errs
}
