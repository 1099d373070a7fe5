// Package compact runs the switch of a rack and the NICs and services of its hosts in one process
// (`daemons: shared` in the rack file).
//
// Each node keeps its namespaces, its process 1 and its programs. Instead of starting a daemon, process 1
// asks the shared process to run the node (Stand), and ends when the node has ended. So whatever kills or ends the processes of a node ends the node in the shared process,
// too, and the end of the shared process ends all nodes.
package compact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"net/http"
	"os"
	"runtime"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/device"
	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// daemons is the shared process of a rack.
type daemons struct {
	paths  rackfile.Paths
	fabric *direct.Fabric
	poller *serve.Poller
	log    *slog.Logger
	nodes  nodes
	reader guests.Reader
}

// none is the body of a request or an answer that has nothing to say.
type none = struct{}

// pathRun is the path, followed by the name of a node, of a POST by which a Stand asks for the node.
const pathRun = "/run/"

// pollTime is how long the shared process looks for posts of programs after the last one. It is longer
// than that of a daemon, because one thread does so for all hosts.
const pollTime = 200 * time.Microsecond

// pollsFor returns how long the shared process of a rack looks for posts. A rack whose switch does not
// poll does not poll at all. A thread with real-time priority does not either: programs of normal
// priority would not get the processor on which it polls, whether it yields or not.
func pollsFor(paths rackfile.Paths) (time.Duration, error) {
	r, err := guests.Load(paths)
	switch {
	case err != nil:
		return 0, fmt.Errorf("rack description: %w", err)
	case r.Switch.Spin == 0 || r.Priority == rackfile.PriorityRealtime:
		return -1, nil
	}
	return pollTime, nil
}

// Main is the shared process of the rack whose state folder is dir. It runs nodes for as long as their
// Stands ask for them, until ctx ends.
func Main(ctx context.Context, dir string) (err error) {
	spin, err := pollsFor(rackfile.Paths{Dir: dir})
	if err != nil {
		return err
	}
	poller, err := serve.NewPoller(spin)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, poller.Close()) }()
	runtime.GOMAXPROCS(runtime.GOMAXPROCS(0) + 1) // one for the thread of the poller
	d := &daemons{
		paths: rackfile.Paths{Dir: dir}, fabric: direct.New(), poller: poller, log: slog.New(guests.LogHandler(rackfile.Paths{Dir: dir}, os.Stderr)),
		nodes: nodes{running: make(map[string]*node)},
	}
	m := control.Mux{Fatal: true} // a node whose part of the process panics leaves locks behind
	control.Handle(&m, "POST "+pathRun+"{node}", d.run)
	control.Handle(&m, "POST "+rack.PathHold+"{node}", d.hold)
	control.Handle(&m, "GET "+rack.PathEnded+"{node}", func(r *http.Request, _ none) (none, error) {
		return none{}, d.nodes.awaitEnd(r.Context(), r.PathValue("node"))
	})
	control.Handle(&m, "GET /status", func(*http.Request, none) (none, error) { return none{}, nil })
	srv, err := control.Serve(d.paths.Socket(rackfile.DaemonsName), &m)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return srv.Close()
}

// run runs a node until the client has gone or the node has ended by itself. If the node still runs
// for a former client, run waits until that has ended.
func (d *daemons) run(r *http.Request, _ none) (_ none, err error) {
	name := r.PathValue("node")
	n, err := d.nodes.begin(r.Context(), name)
	if err != nil {
		return none{}, err
	}
	defer d.nodes.end(name, n)
	out, err := os.OpenFile(d.paths.Log(name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return none{}, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if err := os.Remove(d.paths.Broken(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return none{}, err
	}
	d.log.Info("node begins", "name", name)
	if name == rackfile.SwitchName {
		err = d.runSwitch(r.Context(), n, out)
	} else {
		err = d.runHost(r.Context(), name, n, out)
	}
	if err != nil {
		d.log.Error("node ends", "name", name, "error", err)
	} else {
		d.log.Info("node ends", "name", name)
	}
	return none{}, err
}

func (d *daemons) runSwitch(ctx context.Context, n *node, out io.Writer) error {
	gate := new(control.Gate)
	d.nodes.stoppable(n, func(until <-chan struct{}) { stop(until, gate, d.fabric.Do) })
	defer context.AfterFunc(ctx, func() { d.nodes.releaseFor(n) })()
	at := switchd.Place{Dir: d.paths.Dir, Netns: d.paths.Netns(rackfile.SwitchName), Fabric: d.fabric, Gate: gate}
	return switchd.Main(ctx, at, slog.New(d.reader.LogHandler(d.paths, out)))
}

func (d *daemons) runHost(ctx context.Context, name string, n *node, out io.Writer) error {
	gate := new(control.Gate)
	broken := make(chan *device.Panic, rackfile.MaxNICs)
	h, err := hostd.OpenMachine(hostd.Config{
		Dir: d.paths.Dir, Name: name, Log: slog.New(d.reader.LogHandler(d.paths, out)),
		Netns: d.paths.Netns(name), Fabric: d.fabric, Poller: d.poller, Gate: gate, Reader: &d.reader,
		Broken: func(p *device.Panic) { broken <- p },
	})
	if err != nil {
		return err
	}
	d.nodes.stoppable(n, func(until <-chan struct{}) { stop(until, gate, h.Exclusive) })
	var why error
	select {
	case <-ctx.Done():
	case p := <-broken:
		why = p
		d.noteBroken(name, p, out)
	}
	for _, nic := range h.NICs() {
		d.fabric.Link(nic).Cut() // a host that is stopped must not do what it has left undone before it ends
	}
	d.nodes.releaseFor(n)
	return errors.Join(why, closeHost(h, why != nil))
}

// closeWait is how long the end of a host whose NIC has panicked may take: a lock may be left that
// the panic has kept.
const closeWait = 5 * time.Second

// closeHost closes a host. If its NIC has panicked, it does not wait for long.
func closeHost(h *hostd.Machine, broken bool) error {
	if !broken {
		return h.Close()
	}
	done := make(chan error, 1)
	go func() { done <- h.Close() }()
	select {
	case err := <-done:
		return err
	case <-time.After(closeWait):
		return errors.New("parts of the host do not end")
	}
}

// noteBroken writes why a NIC has ended to the host's log, and to the file from which a status takes
// the reason.
func (d *daemons) noteBroken(name string, p *device.Panic, out io.Writer) {
	d.log.Error("NIC panicked; its host has crashed", "name", name, "panic", p.Value)
	if err := d.reader.LogPanic(d.paths, name, out, "the NIC panicked", p.Value, p.Stack); err != nil {
		d.log.Error("log of the host", "name", name, "error", err)
	}
	if err := os.WriteFile(d.paths.Broken(name), []byte(p.Error()), 0o644); err != nil {
		d.log.Error("reason for the status", "name", name, "error", err)
	}
}

// stop keeps exclusive use of a NIC or the switch, and its gate shut, until `until` closes. It returns
// when it has got that.
func stop(until <-chan struct{}, gate *control.Gate, exclusive func(func())) {
	gate.Shut(until)
	begun := make(chan none)
	go exclusive(func() {
		close(begun)
		<-until
	})
	<-begun
}

// hold stops a node until it is told to go on, as the stop of its process would do: it takes no
// packet, and its requests and services wait.
func (d *daemons) hold(r *http.Request, in rack.Hold) (none, error) {
	if name := r.PathValue("node"); !d.nodes.hold(name, in.On) {
		return none{}, control.Errorf(http.StatusConflict, "%s does not run", name)
	}
	return none{}, nil
}

// Stand takes the place of the daemon of a node: it makes the shared process run the node until ctx ends. It
// returns an error if the node has ended by itself, or the shared process has ended.
func Stand(ctx context.Context, dir, node string) error {
	client := control.NewClient(rackfile.Paths{Dir: dir}.Socket(rackfile.DaemonsName))
	err := client.Call(ctx, http.MethodPost, pathRun+node, nil, nil)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: the shared process of the rack does not run it any more: %w", node, err)
}
