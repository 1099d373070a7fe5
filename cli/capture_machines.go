package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/pcapng"
	"github.com/rdmalab/rdmalab/topo/machines"
)

// openCaptures starts a capture at the switches that have the links. On a rack on several machines these may
// be several, or all if no link is given; then the streams become one, with the times of one clock.
func openCaptures(cmd *cobra.Command, query url.Values) (io.ReadCloser, error) {
	r, paths, err := rackOf(cmd)
	if err != nil {
		return nil, err
	}
	at := captureAt(r, query["link"])
	if f := cmd.Flags().Lookup(switchFlag); len(r.Machines) == 0 || f != nil && f.Changed || len(at) < 2 {
		return openCapture(cmd, query)
	}
	m := &machinesCapture{cmd: cmd, rack: r, paths: paths, closed: make(chan struct{})}
	for _, name := range slices.Sorted(maps.Keys(at)) {
		q := maps.Clone(query)
		q["link"] = at[name]
		stream, err := openCaptureAt(cmd, paths, name, q)
		if err != nil && len(query["link"]) == 0 { // of all links, those of the others
			fmt.Fprintln(cmd.ErrOrStderr(), hintsOf(cmd).error(fmt.Errorf("without the links of %s: %w", name, err)))
			continue
		}
		if err != nil {
			return nil, errors.Join(err, m.Close())
		}
		m.parts = append(m.parts, capturePart{name, stream})
	}
	if len(m.parts) == 0 {
		return nil, errors.New("no switch of the rack answers: see `rdmalab status`")
	}
	m.merge()
	return m, nil
}

// captureAt returns the links that each switch captures; none means all of them. Of a slice these are the
// switches of this machine.
func captureAt(r *rackfile.Rack, links []string) map[string][]string {
	at := make(map[string][]string)
	for _, l := range links {
		name := r.SwitchOf(l)
		at[name] = append(at[name], l)
	}
	if len(links) > 0 {
		return at
	}
	for _, name := range r.SwitchNames() {
		if r.Machine == "" || r.MachineOf(name) == r.Machine {
			at[name] = nil
		}
	}
	return at
}

// machinesCapture is the merged stream of captures at several switches.
type machinesCapture struct {
	cmd    *cobra.Command
	rack   *rackfile.Rack
	paths  rackfile.Paths
	parts  []capturePart
	read   *io.PipeReader
	closed chan struct{}
}

type capturePart struct {
	at     string
	stream io.ReadCloser
}

// Read reads from the merged stream.
func (m *machinesCapture) Read(b []byte) (int, error) { return m.read.Read(b) }

// Close ends all captures.
func (m *machinesCapture) Close() error {
	close(m.closed)
	var errs []error
	for _, p := range m.parts {
		errs = append(errs, p.stream.Close())
	}
	if m.read != nil {
		errs = append(errs, m.read.Close())
	}
	return errors.Join(errs...)
}

const (
	// mergeEvery is the time between two writes of a merged capture; clocksEvery that between two
	// measurements of the machines' clocks.
	mergeEvery  = 50 * time.Millisecond
	clocksEvery = 2 * time.Second
)

// captureEvent is a block of a part, its end (block is nil), or what the clocks of the machines show.
type captureEvent struct {
	part   int
	block  []byte
	err    error
	clocks map[string]machines.Clock
}

// merge starts to merge the parts.
func (m *machinesCapture) merge() {
	read, write := io.Pipe()
	m.read = read
	clocks, err := m.clocks(m.cmd.Context())
	for _, p := range m.parts {
		if _, ok := clocks[m.rack.MachineOf(p.at)]; !ok {
			fmt.Fprintf(m.cmd.ErrOrStderr(), "rdmalab: the clock of %s is not compared with the others, because no trunk to it works; its times are as they are there%s\n",
				m.rack.MachineOf(p.at), either(err != nil, fmt.Sprintf(" (%v)", err), ""))
		}
	}
	events := make(chan captureEvent, 64)
	for i := range m.parts {
		go func() {
			err := pcapng.Blocks(m.parts[i].stream, func(b []byte) error { return m.tell(events, captureEvent{part: i, block: slices.Clone(b)}) })
			_ = m.tell(events, captureEvent{part: i, err: err}) // it fails if the capture was closed
		}()
	}
	go m.watchClocks(events)
	go func() { _ = write.CloseWithError(m.write(write, clocks, events)) }() // it never fails
}

// errClosed says that the merged stream was closed.
var errClosed = errors.New("the capture was closed")

func (m *machinesCapture) tell(events chan<- captureEvent, e captureEvent) error {
	select {
	case events <- e:
		return nil
	case <-m.closed:
		return errClosed
	}
}

// watchClocks measures the clocks again and again, because they drift.
func (m *machinesCapture) watchClocks(events chan<- captureEvent) {
	tick := time.NewTicker(clocksEvery)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-m.closed:
			return
		case <-m.cmd.Context().Done():
			return
		}
		if clocks, err := m.clocks(m.cmd.Context()); err == nil && m.tell(events, captureEvent{clocks: clocks}) != nil {
			return
		}
	}
}

func (m *machinesCapture) clocks(ctx context.Context) (map[string]machines.Clock, error) {
	ends, err := trunkCounters(ctx, m.rack, m.paths)
	return machines.Clocks(m.rack, ends), err
}

// write writes the merged stream until all parts have ended.
func (m *machinesCapture) write(w io.Writer, clocks map[string]machines.Clock, events <-chan captureEvent) error {
	var sources []pcapng.MergeSource
	for _, p := range m.parts {
		sources = append(sources, pcapng.MergeSource{Rename: m.rename(p.at), Ahead: clocks[m.rack.MachineOf(p.at)].Ahead})
	}
	merger, err := pcapng.NewMerger(w, sources)
	if err != nil {
		return err
	}
	begin := time.Now()
	tick := time.NewTicker(mergeEvery)
	defer tick.Stop()
	var broken error
	for left := len(m.parts); left > 0; {
		select {
		case e := <-events:
			switch {
			case e.clocks != nil:
				for i, p := range m.parts {
					if c, ok := e.clocks[m.rack.MachineOf(p.at)]; ok {
						merger.SetAhead(i, c.Ahead)
					}
				}
			case e.block != nil:
				if err := merger.Take(e.part, e.block, time.Since(begin)); err != nil {
					return err
				}
			default:
				merger.End(e.part)
				left--
				if e.err != nil && m.cmd.Context().Err() == nil {
					broken = errors.Join(broken, fmt.Errorf("%s: %w", m.parts[e.part].at, e.err))
				}
			}
		case <-tick.C:
			if err := merger.Write(time.Since(begin)); err != nil {
				return err
			}
		case <-m.closed:
			return errClosed
		}
	}
	return cmp.Or(merger.Write(time.Since(begin)), broken)
}

// rename returns the names of a switch's interfaces in a merged capture: "cn0 up" becomes "cn0@m1 up". The far
// end of a trunk whose two switches are on one machine has the name of its switch.
func (m *machinesCapture) rename(at string) func(string) string {
	return func(name string) string {
		link, dir, ok := strings.Cut(name, " ")
		where := m.rack.MachineOf(at)
		if t, trunk := m.rack.TrunkNamed(link); trunk && at == t.Far && m.rack.MachineOf(t.Leaf) == where {
			where = at
		}
		return link + "@" + where + either(ok, " "+dir, "")
	}
}
