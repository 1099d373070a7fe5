package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/perf"
)

// followed lists the tests that --breakdown supports: those over RoCEv2 with one operation in flight
// that the server's NIC answers.
var followed = []string{"read_lat", "write_lat", "atomic_lat"}

type brokenDown struct {
	*perf.Result
	Breakdown *pathtrace.Breakdown `json:"breakdown,omitempty"`
}

// tracing is the recording of a perf run. The client's host, the switch and the server's host
// record.
type tracing struct {
	from, to string
	nodes    [3]traced
}

type traced struct {
	name   string
	client *control.Client // nil means that this process does not record
	trace  pathtrace.Trace
}

const (
	// tracedEvents bounds how many events of an operation a process records. tracedSpare is
	// additional room for the events of making the connection.
	tracedEvents, tracedSpare = 8, 1024
	// tracedIters is the default number of operations, as in package perf.
	tracedIters = 1000
	// traceWait bounds the requests at the end of a run, also after an interrupt.
	traceWait = 10 * time.Second
)

func startTracing(cmd *cobra.Command, f *perfFlags) (*tracing, error) {
	t := &tracing{from: f.from, to: f.to}
	n := cmp.Or(f.config.Iters, tracedIters)
	req := pathtrace.Request{Events: min(n*tracedEvents+tracedSpare, pathtrace.MaxEvents), Ports: []string{f.from, f.to}}
	r, paths, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	if r.Fabric != nil {
		return nil, badUse("--breakdown follows operations through one switch, and rack %q has several", r.Name)
	}
	for i, name := range []string{f.from, rackfile.SwitchName, f.to} {
		c := control.NewClient(paths.Socket(name))
		if err := ask(cmd.Context(), c, name, http.MethodPost, "/trace", req, nil); err != nil {
			endErr := t.stop() // ends the recording of the processes that have begun
			return nil, errors.Join(err, endErr)
		}
		t.nodes[i] = traced{name: name, client: c}
	}
	return t, nil
}

// end ends the recording and returns the breakdown; nil if t is nil.
func (t *tracing) end() (*pathtrace.Breakdown, error) {
	if t == nil {
		return nil, nil
	}
	if err := t.stop(); err != nil {
		return nil, fmt.Errorf("breakdown: %w", err)
	}
	b, err := pathtrace.Analyze(t.from, t.to, t.nodes[0].trace, t.nodes[1].trace, t.nodes[2].trace)
	if err != nil {
		return nil, fmt.Errorf("breakdown: %w", err)
	}
	return b, nil
}

func (t *tracing) stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), traceWait)
	defer cancel()
	var errs []error
	for i := range t.nodes {
		if n := &t.nodes[i]; n.client != nil {
			errs = append(errs, withNode(n.client.Call(ctx, http.MethodDelete, "/trace", nil, &n.trace), n.name))
		}
	}
	return errors.Join(errs...)
}
