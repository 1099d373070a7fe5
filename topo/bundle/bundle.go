// Package bundle collects the state of a rack in one folder, to find out why something has failed:
// the last packets, counters, tables, faults, the state of every NIC and process, logs, and the
// command that repeats the failure. The README of the bundle lists the parts that could not be
// read. If a part is missing, the others are still written, because bundles are made of racks that
// have failed.
package bundle

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Bounds of a bundle.
const (
	// answerWait bounds each request to a daemon: a hung daemon must not delay the others.
	answerWait = 2 * time.Second
	// maxLog is how much of the end of a log is kept, in bytes.
	maxLog = 4 << 20
	// maxPackets bounds the capture, in bytes.
	maxPackets = 64 << 20
)

// Reason says why a bundle is made. Every field may be empty.
type Reason struct {
	// What names the failed test or command.
	What string `json:"what,omitempty"`
	// Replay is the command that repeats the failure.
	Replay  string `json:"replay,omitempty"`
	Output  string `json:"output,omitempty"` // of the failed command
	Version string `json:"version,omitempty"`
}

// Files of a bundle.
const (
	// ReadMe lists the files of the bundle and the missing parts, and has the command that repeats the
	// failure.
	ReadMe = "README.txt"
	// Packets has the last packets that the switch has received.
	Packets = "packets.pcapng"
	// SpecFile is the resolved description of the rack.
	SpecFile = "rack.json"
	// StatusFile is what `rdmalab status -o json` prints.
	StatusFile = "status.json"
)

// switchParts are the paths of requests to the switch's daemon. The answer to each is a file in
// folder switch of the bundle, named like the path.
var switchParts = []string{"status", "counters", "flows", "faults", "macs", "groups", "program", "program/counters", "rules", "connections", "tables"}

// hostParts are the paths of requests to each host's daemon. The answers are files in a folder with
// the host's name.
var hostParts = []string{"status", "counters", "tear", "faults/verbs"}

// writer collects the files of a bundle.
type writer struct {
	dir string
	mu  sync.Mutex
	// have and lack are lines of the README: the files that were written, and the parts that are
	// missing.
	have, lack []string
}

// Write makes the folder dir, which may exist, and writes the bundle of a rack into it. It returns
// an error only if dir cannot be made or written.
func Write(ctx context.Context, r *rack.Rack, dir string, why Reason) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("bundle: %w", err)
	}
	w := &writer{dir: dir}
	// The packets are read first, because newer packets replace them in the switch.
	w.packets(ctx, r)
	w.copy(r.Paths.Spec(), SpecFile)
	status, err := r.Status(ctx)
	w.json(StatusFile, status, err)
	var wg sync.WaitGroup
	for _, name := range r.Spec.SwitchNames() {
		for _, p := range switchParts {
			wg.Go(func() { w.ask(ctx, r, name, p) })
		}
	}
	for _, h := range r.Spec.NICNames() {
		for _, p := range hostParts {
			wg.Go(func() { w.ask(ctx, r, h, p) })
		}
	}
	wg.Wait()
	for _, name := range r.Spec.SwitchNames() {
		w.copy(r.Paths.Record(name), name+".record")
	}
	w.folder(filepath.Dir(r.Paths.Log(rackfile.SwitchName)), "log")
	w.folder(r.Paths.Guests(), "guests")
	return w.readMe(r, &why)
}

// put writes a file of the bundle. If err is not nil, the contents of the file could not be read.
// The README says that the file was written, or why it is missing.
func (w *writer) put(name string, b []byte, err error) {
	path := filepath.Join(w.dir, name)
	if err == nil {
		err = os.MkdirAll(filepath.Dir(path), 0o755)
	}
	if err == nil {
		err = os.WriteFile(path, b, 0o644)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if err != nil {
		w.lack = append(w.lack, name+": "+err.Error())
		return
	}
	w.have = append(w.have, name)
}

// json writes a value as a JSON file of the bundle. If err is not nil, the value could not be read;
// then there is no file, and the README says why (see put).
func (w *writer) json(name string, v any, err error) {
	var b []byte
	if err == nil {
		b, err = json.MarshalIndent(v, "", "  ")
	}
	w.put(name, append(b, '\n'), err)
}

func (w *writer) ask(ctx context.Context, r *rack.Rack, node, part string) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	var v json.RawMessage
	err := r.Control(node).Call(ctx, http.MethodGet, "/"+part, nil, &v)
	var said *control.Error
	if errors.As(err, &said) && said.Status == http.StatusConflict {
		return // a switch program without rules does not have this part
	}
	w.json(filepath.Join(node, strings.ReplaceAll(part, "/", "-")+".json"), v, err)
}

func (w *writer) packets(ctx context.Context, r *rack.Rack) {
	ctx, cancel := context.WithTimeout(ctx, answerWait)
	defer cancel()
	stream, err := r.Control(r.Spec.SwitchNames()[0]).Stream(ctx, http.MethodGet, "/past", nil)
	var b []byte
	if err == nil {
		defer stream.Close() // the stream was only read, so its error does not matter
		b, err = io.ReadAll(io.LimitReader(stream, maxPackets))
	}
	w.put(Packets, b, err)
}

// copy copies a file, or its end if it is long. A file that does not exist is not reported.
func (w *writer) copy(from, name string) {
	if b, err := end(from); !errors.Is(err, fs.ErrNotExist) {
		w.put(name, b, err)
	}
}

// end reads a file, or the last maxLog bytes of a longer one.
func end(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close() // the file was only read, so its error does not matter
	if info, err := f.Stat(); err == nil && info.Size() > maxLog {
		if _, err := f.Seek(-maxLog, io.SeekEnd); err != nil {
			return nil, err
		}
	}
	return io.ReadAll(io.LimitReader(f, maxLog))
}

func (w *writer) folder(from, name string) {
	entries, err := os.ReadDir(from)
	if err != nil {
		return // a rack that never had guests has no folder for them
	}
	for _, e := range entries {
		if e.Type().IsRegular() {
			w.copy(filepath.Join(from, e.Name()), filepath.Join(name, e.Name()))
		}
	}
}
