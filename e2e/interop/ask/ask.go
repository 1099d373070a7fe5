// Package ask defines the messages between a suite and the virtual machine over a virtio port:
// questions and answers, as JSON objects in sequence.
package ask

import (
	"bytes"
	"fmt"
	"sync"
)

// Names of the virtio ports.
const (
	CommandPort = "rdmalab.command"
	verbsPort   = "rdmalab.verbs"
)

// VerbsPorts is how many programs guest/verbs.py run, each at a port of its own.
const VerbsPorts = 3

// VerbsPort returns the name of port i.
func VerbsPort(i int) string { return fmt.Sprintf("%s%d", verbsPort, i) }

// Question asks the guest to run a program. Without Args it sends Signal to the program of that ID;
// 0 is KILL.
type Question struct {
	ID       int      `json:"id"`
	Args     []string `json:"args,omitempty"`
	Env      []string `json:"env,omitempty"` // NAME=VALUE, in addition to the guest's
	Signal   int      `json:"signal,omitempty"`
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

// Output keeps the beginning of a program's output. Several goroutines may use it.
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
