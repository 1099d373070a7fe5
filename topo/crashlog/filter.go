// Package crashlog keeps a log of JSON whole when a process crashes. Go's runtime prints a panic of any goroutine, and
// its own fatal errors, as text on standard error and ends the process: no code of the process can change that. So a
// parent reads the standard error of a daemon and passes it on by a Filter: process 1 of a node or of a container, or
// Supervise.
package crashlog

import (
	"bytes"
	"encoding/json"
	"io"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// quiet is how long after the last line of a crash its record is written, if the end of the output does not come
	// before: a program that the process has started may keep it open.
	quiet = time.Second
	// maxCrash bounds the bytes that are kept of a crash, and of a line.
	maxCrash = 1 << 20
)

// Filter writes lines to a log in which each line is a JSON object. Lines that are objects pass unchanged, a crash
// becomes one record of level ERROR with attributes panic and stack, and any other line one of level WARN. Its methods
// may be called at the same time.
type Filter struct {
	mu    sync.Mutex
	out   io.Writer
	log   *slog.Logger
	line  []byte   // the begin of a line
	crash []string // the lines of a crash so far
	size  int      // their bytes
	timer *time.Timer
}

// NewFilter returns a Filter that writes to out; its own records have the attributes, which are those of slog.
func NewFilter(out io.Writer, attributes ...any) *Filter {
	f := &Filter{out: out, log: slog.New(slog.NewJSONHandler(out, nil)).With(attributes...)}
	f.timer = time.AfterFunc(time.Hour, f.flush)
	f.timer.Stop()
	return f
}

// Write takes a part of the output. It never fails: a log that cannot be written must not stop the process.
func (f *Filter) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.line = append(f.line, p...)
	for {
		i := bytes.IndexByte(f.line, '\n')
		if i < 0 && len(f.line) < maxCrash {
			break
		}
		if i < 0 {
			i = len(f.line) - 1
		}
		f.take(f.line[:i+1])
		f.line = f.line[i+1:]
	}
	if len(f.crash) > 0 || len(f.line) > 0 {
		f.timer.Reset(quiet)
	}
	return len(p), nil
}

// Close writes what is incomplete.
func (f *Filter) Close() error {
	f.timer.Stop()
	f.flush()
	return nil
}

func (f *Filter) flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.line) > 0 {
		f.take(append(f.line, '\n'))
		f.line = nil
	}
	f.record()
}

// take handles a line, which ends with a newline. The caller holds f.mu.
func (f *Filter) take(line []byte) {
	if len(line) > 0 && line[0] == '{' && json.Valid(line) {
		_, _ = f.out.Write(line) // see Write
		return
	}
	text := strings.TrimRight(string(line), "\r\n")
	switch {
	case len(f.crash) > 0 || begins(text):
		if f.size += len(text); f.size <= maxCrash {
			f.crash = append(f.crash, text)
		}
	case strings.TrimSpace(text) != "":
		f.log.Warn(text)
	}
}

// crashes are the begins of the first lines of a crash.
var crashes = []string{"panic: ", "fatal error: ", "fatal: ", "runtime: ", "SIG", "unexpected fault address ", "goroutine ", "[signal "}

func begins(line string) bool {
	for _, c := range crashes {
		if strings.HasPrefix(line, c) {
			return true
		}
	}
	return false
}

// record writes the record of the crash, if there is one, and lines of the runtime before it as warnings. The caller
// holds f.mu.
func (f *Filter) record() {
	lines := f.crash
	f.crash, f.size = nil, 0
	why := slices.IndexFunc(lines, func(line string) bool { return strings.HasPrefix(line, "panic: ") })
	text := "the process panicked"
	if why < 0 {
		why, text = slices.IndexFunc(lines, fatal), "the process has ended by a fatal error of its runtime"
	}
	if why < 0 { // no crash
		why = len(lines)
	}
	for _, line := range lines[:why] {
		if line != "" {
			f.log.Warn(line)
		}
	}
	if lines = lines[why:]; len(lines) == 0 {
		return
	}
	at := slices.IndexFunc(lines, traces)
	if at < 0 {
		at = len(lines)
	}
	head, stack := strings.TrimSpace(strings.Join(lines[:at], "\n")), strings.TrimSpace(strings.Join(lines[at:], "\n"))
	f.log.Error(text, "panic", strings.TrimPrefix(head, "panic: "), "stack", stack)
}

// fatal reports whether a line says why the runtime has ended the process.
func fatal(line string) bool {
	return strings.HasPrefix(line, "fatal") || strings.HasPrefix(line, "SIG") || strings.HasPrefix(line, "goroutine ")
}

// traces reports whether a line begins the stacks of a crash.
func traces(line string) bool {
	return strings.HasPrefix(line, "goroutine ") || strings.HasPrefix(line, "runtime stack:")
}
