// Package ask is what a suite and the virtual machine say to each other over a virtio port: questions and answers, JSON
// objects one behind the other.
package ask

import (
	"bytes"
	"sync"
)

// Names of the virtio ports.
const (
	CommandPort = "rdmalab.command"
	VerbsPort   = "rdmalab.verbs"
)

// Question asks the guest to run a program. Without Args it ends the program of that ID.
type Question struct {
	ID       int      `json:"id"`
	Args     []string `json:"args,omitempty"`
	PowerOff bool     `json:"powerOff,omitempty"`
}

// Answer is how a program ended; Code -1 says that it was killed or did not start.
type Answer struct {
	ID     int    `json:"id"`
	Code   int    `json:"code"`
	Output string `json:"output"`
}

// maxOutput is how much of a program's output is kept, in bytes.
const maxOutput = 1 << 20

// Output keeps the beginning of what a program says. It may be used by several goroutines.
type Output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

// Write keeps p, or what there is room for, and never fails.
func (o *Output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.b.Write(p[:min(len(p), max(0, maxOutput-o.b.Len()))])
	return len(p), nil
}

// String is what was kept.
func (o *Output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}
