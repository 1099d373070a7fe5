package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/pathtrace"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// followed are the tests that --breakdown can follow: one operation in flight, which the server's
// NIC answers.
var followed = []string{"read_lat", "write_lat", "atomic_lat"}

// brokenDown is the result of a test with its breakdown, if that was asked for.
type brokenDown struct {
	*perf.Result
	Breakdown *pathtrace.Breakdown `json:"breakdown,omitempty"`
}

// tracing is the recording of a run of perf in the client's host, the switch and the server's host.
type tracing struct {
	from, to string
	nodes    [3]traced
}

// traced is one of the processes that record.
type traced struct {
	name   string
	client *control.Client
}

const (
	// tracedEvents is how many events of an operation a process records at most, and tracedSpare
	// those of the connection.
	tracedEvents, tracedSpare = 8, 1024
	// tracedIters is the default number of messages, as in package perf.
	tracedIters = 1000
	// traceWait bounds the requests at the end of a run: also of one that was interrupted.
	traceWait = 10 * time.Second
)

// startTracing makes the three processes record.
func startTracing(cmd *cobra.Command, f *perfFlags) (*tracing, error) {
	t := &tracing{from: f.from, to: f.to}
	n := f.config.Iters
	if n == 0 {
		n = tracedIters
	}
	req := pathtrace.Request{Events: min(n*tracedEvents+tracedSpare, pathtrace.MaxEvents)}
	for i, name := range []string{f.from, spec.SwitchName, f.to} {
		var c *control.Client
		var err error
		if name == spec.SwitchName {
			c, err = switchControl(cmd)
		} else {
			c, err = hostControl(cmd, name)
		}
		if err != nil {
			return nil, err
		}
		t.nodes[i] = traced{name, c}
		ctx, cancel := context.WithTimeout(cmd.Context(), daemonWait)
		err = whose(c.Call(ctx, http.MethodPost, "/trace", req, nil), name)
		cancel()
		if err != nil {
			_, endErr := t.end() // those that record already
			return nil, errors.Join(err, endErr)
		}
	}
	return t, nil
}

// end ends the recording and computes the breakdown; that of a nil tracing is nil.
func (t *tracing) end() (*pathtrace.Breakdown, error) {
	if t == nil {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), traceWait)
	defer cancel()
	var traces [3]pathtrace.Trace
	var errs []error
	for i, n := range t.nodes {
		if n.client != nil {
			errs = append(errs, whose(n.client.Call(ctx, http.MethodDelete, "/trace", nil, &traces[i]), n.name))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return nil, fmt.Errorf("breakdown: %w", err)
	}
	b, err := pathtrace.Analyze(t.from, t.to, traces[0], traces[1], traces[2])
	if err != nil {
		return nil, fmt.Errorf("breakdown: %w", err)
	}
	return b, nil
}
