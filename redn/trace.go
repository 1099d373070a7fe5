package redn

import (
	"bytes"
	"fmt"
	"io"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/sendring"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// RunTraced is Run that prints each request when the NIC executes it: virtual time, queue, index
// and text. Below the request it prints the bytes that were changed since it was appended, before
// and after.
func (m *Machine) RunTraced(out io.Writer) error {
	posted := map[wire.QPN]map[uint32][]byte{}
	names := map[wire.QPN]string{}
	for _, q := range m.queues {
		names[q.QPN] = q.Name
		posted[q.QPN] = map[uint32][]byte{}
		for _, r := range q.requests {
			posted[q.QPN][r.index] = r.entry.AppendTo(nil)
		}
	}
	var failed error
	engine.TraceRings(m.NIC, func(n wire.QPN, ev *sendring.Event) {
		text := Text(ev.Entry)
		if ev.Err != nil {
			text = "refused: " + ev.Err.Error()
		}
		_, err := fmt.Fprintf(out, "%8v  %-6s %3d  %s\n", time.Duration(m.Now), names[n], ev.Index, text)
		for _, d := range differences(posted[n][ev.Index], ev.Bytes) {
			_, e := fmt.Fprintf(out, "%25s%s\n", "", d)
			err = firstError(err, e)
		}
		failed = firstError(failed, err)
	})
	defer engine.TraceRings(m.NIC, nil)
	return firstError(m.Run(), failed)
}

func firstError(a, b error) error {
	if a != nil {
		return a
	}
	return b
}

// differences describes where two entries differ, by runs of bytes of the same segment.
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
