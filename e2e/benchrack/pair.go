package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// ms0Address is the address of ms0 in all rack files, whose first host it is.
const ms0Address = "10.77.0.2"

// serverPause is the time between two tries of a client whose server does not listen yet.
const serverPause = 50 * time.Millisecond

// command runs a program to its end and returns its output. It ends the program early when ctx
// ends. An error contains the program's error message.
type command func(ctx context.Context) ([]byte, error)

// pair runs a server, and a client on another host, and returns what the client prints. The client
// is tried again while the server does not listen.
func pair(ctx context.Context, server, client command) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, commandLimit)
	defer cancel()
	ended := make(chan error, 1)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		_, err := server(serving)
		ended <- err
	}()
	for {
		out, err := client(ctx)
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

// column returns a function that reads column n of perftest's line of results, and multiplies it by
// unit. The columns of a bandwidth test are, from 0 on: bytes, iterations, peak, average, million
// messages a second; those of a latency test: bytes, iterations, least, most, median, mean.
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

// mean reads the mean latency in seconds from the JSON of `rdmalab perf --peer`, which has no
// median.
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

// seconds is how long a test of a rate runs, on both sides: long enough that the first messages, for
// which memory is mapped and threads wake up, are a small part.
const seconds = "2"

// exchange is a test of perftest.
type exchange struct {
	name, test, size string
	// iters is the number of repetitions; 0 means that the test runs for seconds.
	iters int
	unit  string
	// column is the number of the result's column in perftest's output, and scale converts the
	// result into unit; see the function column.
	column int
	scale  float64
	read   func([]byte) (float64, error) // reads the result of the same test by `rdmalab perf`
}

// exchanges are the tests of perftest that are measured.
var exchanges = []exchange{
	{"write_lat", "write_lat", "8", 20000, "sec/op", 5, 1e-6, mean},
	{"read_lat", "read_lat", "8", 20000, "sec/op", 4, 1e-6, median},
	{"write_8", "write_bw", "8", 0, "msgs/s", 4, 1e6, messages},
	{"send_8", "send_bw", "8", 0, "msgs/s", 4, 1e6, messages},
	{"write_64k", "write_bw", "65536", 0, "B/s", 3, 1 << 20, volume},
	{"send_64k", "send_bw", "65536", 0, "B/s", 3, 1 << 20, volume},
}

// args are the arguments of the program, with iters repetitions; 0 means that it runs for seconds. gid
// is the index of the device's address in its table.
func (e exchange) args(gid string, iters int) []string {
	args := []string{"ib_" + e.test, "-d", "rxe0", "-x", gid, "-F", "-s", e.size}
	if iters == 0 {
		return append(args, "-D", seconds)
	}
	return append(args, "-n", strconv.Itoa(iters))
}

// inside are the arguments of rdmalab for the same test by the daemons.
func (e exchange) inside() []string {
	args := []string{"perf", e.test, "--size", e.size, "-q", "-o", "json"}
	if e.iters == 0 {
		return append(args, "--duration", seconds)
	}
	return append(args, "--iters", strconv.Itoa(e.iters))
}

// programs measures perftest, unmodified, on the hosts of a rack beside the same exchange by the
// daemons themselves: with memory that the daemons access by system calls, and with memory that the
// programs share with them.
func programs() (ms []measure) {
	for _, e := range exchanges {
		inside := e.inside()
		daemons := measure{name: "daemon_" + e.name, unit: e.unit, read: e.read, args: append(inside, "--from", "cn0", "--to", "ms0")}
		if e.test == "write_lat" { // perftest measures half of a round trip of two WRITEs; perf does so with the peer perftest only
			daemons.server = append(inside[:len(inside):len(inside)], "--peer", "perftest", "--from", "ms0")
			daemons.args = append(inside[:len(inside):len(inside)], "--peer", "perftest", "--from", "cn0", "--to", ms0Address)
		}
		ms = append(ms, daemons)
		for _, k := range kinds {
			by := func(host string, more ...string) []string {
				return slices.Concat([]string{"exec"}, k.flags, []string{host, "--"}, e.args("0", e.iters), more)
			}
			ms = append(ms, measure{
				name: k.name + e.name, unit: e.unit, base: daemons.name, read: column(e.column, e.scale),
				server: by("ms0"), args: by("cn0", ms0Address),
			})
		}
	}
	return ms
}

// kinds are the ways in which programs run: the beginning of a measure's name, and the flags of exec.
var kinds = []struct {
	name  string
	flags []string
}{{"program_", nil}, {"shared_", []string{"--shared-memory"}}}
