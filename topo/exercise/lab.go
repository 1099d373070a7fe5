package exercise

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// askPatience bounds a question to a daemon, and runPatience a measurement.
const (
	askPatience = 10 * time.Second
	runPatience = time.Minute
)

// maxCapture bounds a capture of an exercise, in bytes.
const maxCapture = 8 << 20

// ask sends a request to a node's daemon.
func (l *Lab) ask(ctx context.Context, node, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, askPatience)
	defer cancel()
	if err := l.Rack.Control(node).Call(ctx, method, path, in, out); err != nil {
		return fmt.Errorf("%s: %w", node, err)
	}
	return nil
}

// inject makes a fault rule and returns its name.
func (l *Lab) inject(ctx context.Context, r fault.Rule) (string, error) {
	var made fault.Rule
	err := l.ask(ctx, rackfile.SwitchName, http.MethodPost, "/faults", r, &made)
	return made.ID, err
}

func (l *Lab) heal(ctx context.Context, id string) error {
	return l.ask(ctx, rackfile.SwitchName, http.MethodDelete, "/faults/"+url.PathEscape(id), nil, nil)
}

// run runs a test from the client.
func (l *Lab) run(ctx context.Context, c perf.Config) (res perf.Result, err error) {
	ctx, cancel := context.WithTimeout(ctx, runPatience)
	defer cancel()
	got := false
	err = control.Items(ctx, l.Rack.Control(l.Client), http.MethodPost, hostd.PathPerf, c, func(ev perf.Event) error {
		if ev.Error != "" {
			return errors.New(ev.Error)
		}
		if ev.Result != nil {
			res, got = *ev.Result, true
		}
		return nil
	})
	if err == nil && !got {
		err = fmt.Errorf("%s has no result", c.Test)
	}
	return res, err
}

// capture is a capture of the client's link that has begun.
type capture struct {
	lab  *Lab
	name string
	from io.ReadCloser
	read chan error
	data bytes.Buffer
}

// capture begins a capture of the client's link. The caller ends it by end.
func (l *Lab) capture(ctx context.Context) (*capture, error) {
	c := &capture{lab: l, name: "exercise-" + strconv.FormatUint(rand.Uint64(), 36), read: make(chan error, 1)}
	q := url.Values{"link": {l.Client}, "name": {c.name}, "for": {runPatience.String()}}
	stream, err := l.Rack.Control(rackfile.SwitchName).Stream(ctx, http.MethodGet, "/capture?"+q.Encode(), nil)
	if err != nil {
		return nil, fmt.Errorf("capture: %w", err)
	}
	c.from = stream
	go func() { // ends with the stream, which end ends
		_, err := io.Copy(&c.data, io.LimitReader(stream, maxCapture))
		c.read <- err
	}()
	return c, nil
}

// end ends the capture and returns its packets as pcapng.
func (c *capture) end() ([]byte, error) {
	endErr := c.lab.ask(context.Background(), rackfile.SwitchName, http.MethodPost, "/capture/"+c.name+"/end", nil, nil)
	if endErr != nil {
		endErr = errors.Join(endErr, c.from.Close()) // ends the reader
	}
	err := errors.Join(endErr, <-c.read)
	if endErr == nil {
		err = errors.Join(err, c.from.Close())
	}
	return c.data.Bytes(), err
}

// recordsOf calls each for the packets of a capture, in their order.
func recordsOf(packets []byte, each func(*dump.Record) error) error {
	d, err := dump.New(io.Discard, dump.Config{Each: each})
	if err != nil {
		return err
	}
	return d.Dump("", bytes.NewReader(packets))
}

// rowsOf returns the rows of the ladder of a capture.
func rowsOf(packets []byte) ([]ladder.Row, error) {
	m := ladder.New()
	if err := recordsOf(packets, m.Add); err != nil {
		return nil, err
	}
	return m.Rows(), nil
}
