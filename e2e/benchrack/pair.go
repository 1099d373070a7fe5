package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"
)

// ms0Address is the address of ms0 in all rack files, whose first host it is.
const ms0Address = "10.77.0.2"

// serverPause is the time between two tries of a client whose server does not listen yet.
const serverPause = 50 * time.Millisecond

// pair runs a command as server on ms0, and as client on cn0, and returns what the client prints.
// The client is tried again while the server does not listen.
func (b bench) pair(ctx context.Context, server, client []string) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	ended := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, err := b.rdmalab(serving, server...)
		ended <- err
	}()
	for {
		out, err := b.rdmalab(ctx, client...)
		if err == nil {
			return out, <-ended
		}
		if said := err.Error(); !strings.Contains(said, "Couldn't connect") && !strings.Contains(said, "connection refused") {
			stop()
			return nil, errors.Join(err, <-ended)
		}
		select {
		case err := <-ended:
			return nil, fmt.Errorf("the server ended before a client came: %w", err)
		case <-time.After(serverPause):
		}
	}
}

// column reads a column of perftest's line of results: from 0 on, bytes, iterations, peak, average,
// million messages a second; of latency bytes, iterations, least, most, median, mean.
func column(n int, unit float64) func([]byte) (float64, error) {
	return func(out []byte) (float64, error) {
		_, table, ok := strings.Cut(string(out), "#bytes")
		if !ok {
			return 0, errNoFigure
		}
		for line := range strings.Lines(table) {
			f := strings.Fields(line)
			if len(f) <= n {
				continue
			}
			if _, err := strconv.Atoi(f[0]); err != nil {
				continue
			}
			v, err := strconv.ParseFloat(f[n], 64)
			if err != nil || v <= 0 {
				return 0, fmt.Errorf("%w: %q", errNoFigure, line)
			}
			return v * unit, nil
		}
		return 0, errNoFigure
	}
}

// mean reads the mean of perf with a peer, which has no other.
func mean(b []byte) (float64, error) {
	var res struct {
		Usec float64 `json:"usec"`
	}
	if err := json.Unmarshal(b, &res); err != nil {
		return 0, err
	}
	if res.Usec <= 0 {
		return 0, errNoFigure
	}
	return res.Usec / 1e6, nil
}

// missing returns a program of perftest that is not installed, "" if all are.
func missing() string {
	for _, p := range []string{"ib_write_lat", "ib_read_lat", "ib_write_bw", "ib_send_bw"} {
		if _, err := exec.LookPath(p); err != nil {
			return p
		}
	}
	return ""
}

// programs measures perftest, unmodified, on the hosts of a rack beside the same exchange by the
// daemons themselves.
func programs() (ms []measure) {
	for _, p := range []struct {
		name, test, size, iters, unit string
		column                        int
		scale                         float64
		read                          func([]byte) (float64, error)
	}{
		{"write_lat", "write_lat", "8", "2000", "sec/op", 5, 1e-6, mean},
		{"read_lat", "read_lat", "8", "2000", "sec/op", 4, 1e-6, median},
		{"write_8", "write_bw", "8", "20000", "msgs/s", 4, 1e6, messages},
		{"send_8", "send_bw", "8", "20000", "msgs/s", 4, 1e6, messages},
		{"write_64k", "write_bw", "65536", "1000", "B/s", 3, 1 << 20, volume},
		{"send_64k", "send_bw", "65536", "1000", "B/s", 3, 1 << 20, volume},
	} {
		inside := []string{"perf", p.test, "--size", p.size, "--iters", p.iters, "-q", "-o", "json"}
		outside := []string{"ib_" + p.test, "-d", "rxe0", "-x", "0", "-F", "-s", p.size, "-n", p.iters}
		by := func(host string, more ...string) []string {
			return append(append([]string{"exec", host, "--"}, outside...), more...)
		}
		daemons := measure{name: "daemon_" + p.name, unit: p.unit, read: p.read, args: append(inside, "--from", "cn0", "--to", "ms0")}
		if p.test == "write_lat" { // perftest measures half of a round trip of two WRITEs; perf does so with the peer perftest only
			daemons.server = append(inside[:len(inside):len(inside)], "--peer", "perftest", "--from", "ms0")
			daemons.args = append(inside[:len(inside):len(inside)], "--peer", "perftest", "--from", "cn0", "--to", ms0Address)
		}
		ms = append(ms, daemons, measure{
			name: "program_" + p.name, unit: p.unit, base: "daemon_" + p.name, read: column(p.column, p.scale),
			server: by("ms0"), args: by("cn0", ms0Address),
		})
	}
	return ms
}
