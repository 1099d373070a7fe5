package redn

import (
	"bytes"
	"cmp"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Step is a request that a machine has executed, or refused.
type Step struct {
	// Time is the virtual time at which the NIC began the round of work in which it has executed
	// the request.
	Time  time.Duration
	Queue *Queue
	Index uint32
	Entry sendring.Entry
	// Err is why the request was refused; nil means that it was executed.
	Err error
	// Bytes are the bytes of the request as they were executed.
	Bytes []byte
	// Changes describes the bytes that were changed since the request was appended: their values
	// before and after.
	Changes []string
}

// String describes the step as RunTraced prints it: one line for the request, and one for each of
// Changes.
func (s *Step) String() string {
	text := Text(&s.Entry)
	if s.Err != nil {
		text = "refused: " + s.Err.Error()
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%8v  %-6s %3d  %s\n", s.Time, s.Queue.Name, s.Index, text)
	for _, d := range s.Changes {
		fmt.Fprintf(&b, "%25s%s\n", "", d)
	}
	return b.String()
}

// Observe does what Run does, and calls f for each request when the NIC executes it. The step
// belongs to f. f must not call the machine.
func (m *Machine) Observe(f func(*Step)) error {
	posted := map[wire.QPN]map[uint32][]byte{}
	queues := map[wire.QPN]*Queue{}
	for _, q := range m.queues {
		queues[q.QPN] = q.Queue
		posted[q.QPN] = map[uint32][]byte{}
		for _, r := range q.requests {
			posted[q.QPN][r.index] = r.entry.AppendTo(nil)
		}
	}
	m.NIC.Hooks.Executed = func(n wire.QPN, ev *sendring.Event) {
		s := &Step{Time: time.Duration(m.Now), Queue: queues[n], Index: ev.Index, Err: ev.Err, Bytes: bytes.Clone(ev.Bytes)}
		s.Entry, s.Changes = *ev.Entry, differences(posted[n][ev.Index], s.Bytes)
		f(s)
	}
	defer func() { m.NIC.Hooks.Executed = nil }()
	return m.Run()
}

// RunTraced does what Run does, and prints each request to out when the NIC executes it: virtual
// time, queue, index and text. Below the request it prints the old and the new value of the bytes
// that other requests have changed since the request was appended.
func (m *Machine) RunTraced(out io.Writer) error {
	var failed error
	err := m.Observe(func(s *Step) {
		_, err := io.WriteString(out, s.String())
		failed = cmp.Or(failed, err)
	})
	return cmp.Or(err, failed)
}

// differences describes where two entries differ: for each segment that differs, the bytes from the
// first to the last one that does.
func differences(before, after []byte) (lines []string) {
	const segment = 16
	for at := 0; at < min(len(before), len(after)); at += segment {
		b, a := before[at:at+segment], after[at:at+segment]
		if bytes.Equal(a, b) {
			continue
		}
		first, last := 0, segment-1
		for a[first] == b[first] {
			first++
		}
		for a[last] == b[last] {
			last--
		}
		lines = append(lines, fmt.Sprintf("bytes %d to %d: % x -> % x", at+first, at+last, b[first:last+1], a[first:last+1]))
	}
	return lines
}
