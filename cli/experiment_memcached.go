package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/store/nictable"
)

// memaslap is the load generator: the program memaslap of libmemcached, as Debian calls it.
const (
	memaslap      = "memcaslap"
	memcachedPort = "11211"
	// memaslapWindow is the unit of the number of keys of each client of memaslap.
	memaslapWindow = 1024
	// memcachedEach is how many bytes a key takes beside its value, for the limit of memcached's memory.
	memcachedEach = 256
	// memcachedStart is how long memcached may take until it accepts connections.
	memcachedStart = 10 * time.Second
)

// Memcached lets memaslap on the first compute host load a server of memcached's protocol: the front of
// nictable on the same host, the process of nictable, or memcached on the metadata host.
func (p *rackPlatform) Memcached(ctx context.Context, l experiment.Memcached) (out experiment.MemcachedResult, err error) {
	if _, err := exec.LookPath(memaslap); err != nil {
		return out, fmt.Errorf("%s is not installed: apt-get install libmemcached-tools", memaslap)
	}
	if err := p.noStores(); err != nil {
		return out, err
	}
	server, err := nictable.Store.Server(p.rack)
	if err != nil {
		return out, err
	}
	on := memcachedRack{p.rack.Name, p.hosts[0]}
	window := (l.Keys/l.Clients + memaslapWindow - 1) / memaslapWindow
	var stop func() error
	to := server
	switch l.Way {
	case experiment.WayNIC, experiment.WayPolling:
		// memaslap writes some keys twice, and makes a few more than the window.
		items := l.Clients * (window + 1) * memaslapWindow
		if _, err := on.self(ctx, "nictable", "start", "--fresh", "--items", strconv.Itoa(items), "--value", strconv.Itoa(l.Bytes+memaslapKey), "--memcached", ":"+memcachedPort); err != nil {
			return out, err
		}
		stop = func() error { return stopStore(p.cmd, &nictable.Store) }
		if l.Way == experiment.WayNIC {
			if _, err := on.self(ctx, "nictable", "front", "--from", p.hosts[0], "--listen", ":"+memcachedPort); err != nil {
				return out, errors.Join(err, stop())
			}
			to = p.hosts[0]
			stop = func() error {
				_, err := on.self(context.WithoutCancel(ctx), "nictable", "front", "--from", p.hosts[0], "--off")
				return errors.Join(err, stopStore(p.cmd, &nictable.Store))
			}
		}
	case experiment.WayMemcached:
		if stop, err = on.startMemcached(ctx, server, l); err != nil {
			return out, err
		}
	default:
		return out, errors.ErrUnsupported
	}
	defer func() { err = errors.Join(err, stop()) }()
	return on.memaslap(ctx, to, window, l)
}

// memcachedRack runs the programs of a Memcached load by commands of this program.
type memcachedRack struct {
	rack   string // its name
	client string // the host on which memaslap runs
}

// memaslapKey is the length of an item's head and key in the table of nictable; see memaslap.
const memaslapKey = 6 + 16

// memaslap runs memaslap on the first compute host: it writes the keys, then makes the GETs and compares
// each answer.
func (on memcachedRack) memaslap(ctx context.Context, server string, window int, l experiment.Memcached) (out experiment.MemcachedResult, err error) {
	dir, err := os.MkdirTemp("", "memaslap")
	if err != nil {
		return out, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	file := filepath.Join(dir, "load")
	if err := os.WriteFile(file, fmt.Appendf(nil, "key\n16 16 1\nvalue\n%d %d 1\ncmd\n0 0.0\n1 1.0\n", l.Bytes, l.Bytes), 0o600); err != nil {
		return out, err
	}
	began := time.Now()
	text, err := on.self(ctx, "exec", on.client, "--", memaslap, "-s", server+":"+memcachedPort, "-F", file, "-T", "1",
		"-c", strconv.Itoa(l.Clients), "-w", strconv.Itoa(window)+"k", "-x", strconv.Itoa(l.Gets), "-v", "1.0")
	if err != nil {
		return out, err
	}
	took := time.Since(began)
	out, err = parseMemaslap(text)
	if out.Gets > 0 {
		out.Rate = float64(out.Gets+out.Keys) / took.Seconds()
		out.Mean = took * time.Duration(l.Clients) / time.Duration(out.Gets+out.Keys)
	}
	return out, err
}

var memaslapLine = regexp.MustCompile(`(?m)^(\w+): (\d+)$`)

// parseMemaslap reads the counts that memaslap prints at its end. A refused command is an error.
func parseMemaslap(text string) (out experiment.MemcachedResult, err error) {
	count := make(map[string]int)
	for _, m := range memaslapLine.FindAllStringSubmatch(text, -1) {
		if count[m[1]], err = strconv.Atoi(m[2]); err != nil {
			return out, err
		}
	}
	for _, name := range []string{"cmd_get", "cmd_set", "get_misses", "verify_misses", "verify_failed"} {
		if _, ok := count[name]; !ok {
			return out, fmt.Errorf("%s prints no %s: %.300q", memaslap, name, text)
		}
	}
	if i := strings.Index(text, "_ERROR"); i >= 0 {
		return out, fmt.Errorf("%s: %.60q", memaslap, text[max(0, i-6):])
	}
	out.Keys, out.Gets = count["cmd_set"], count["cmd_get"]
	out.Wrong, out.Missed = count["verify_failed"], count["get_misses"]+count["verify_misses"]
	return out, nil
}

// startMemcached runs memcached on a host until stop is called.
func (on memcachedRack) startMemcached(ctx context.Context, host string, l experiment.Memcached) (stop func() error, err error) {
	ctx, cancel := context.WithCancel(ctx)
	megabytes := (l.Keys*(l.Bytes+memcachedEach))>>20 + 64
	cmd, err := on.command(ctx, "exec", host, "--", "memcached", "-u", "nobody", "-p", memcachedPort, "-t", "1", "-m", strconv.Itoa(megabytes))
	if err != nil {
		cancel()
		return nil, err
	}
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) } // exec passes it on
	if err := cmd.Start(); err != nil {
		cancel()
		return nil, err
	}
	stop = func() error {
		cancel()
		_ = cmd.Wait() // it was ended by a signal
		return nil
	}
	for end := time.Now().Add(memcachedStart); ; {
		_, err := on.self(ctx, "exec", on.client, "--", "memcping", "--servers="+host+":"+memcachedPort)
		if err == nil {
			return stop, nil
		}
		if time.Now().After(end) {
			return nil, errors.Join(fmt.Errorf("memcached on %s does not answer: %w", host, err), stop())
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return nil, errors.Join(err, stop())
		}
	}
}

// command is a command of this program, on the platform's rack.
func (on memcachedRack) command(ctx context.Context, args ...string) (*exec.Cmd, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, err
	}
	return exec.CommandContext(ctx, program, append([]string{"--rack", on.rack}, args...)...), nil //nolint:gosec // it is this program
}

// self runs a command of this program, and returns what it prints.
func (on memcachedRack) self(ctx context.Context, args ...string) (string, error) {
	cmd, err := on.command(ctx, args...)
	if err != nil {
		return "", err
	}
	out, err := cmd.Output()
	var failed *exec.ExitError
	if errors.As(err, &failed) {
		err = fmt.Errorf("%s: %s", strings.Join(args, " "), strings.TrimSpace(string(failed.Stderr)+string(out)))
	}
	return string(out), err
}
