// Package compact runs the switch of a rack and the NICs and services of its hosts in one process
// (`daemons: shared` in the rack file).
//
// Each node keeps its namespaces, its process 1 and its programs. In place of its daemon, process 1
// starts a small process (Stand), which asks the shared process to run the node, and ends when the node
// has ended. So whatever kills or ends the processes of a node ends the node in the shared process,
// too, and the end of the shared process ends all nodes.
package compact

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net/http"
	"os"
	"sync"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/packetio/direct"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
)

// daemons is the shared process of a rack.
type daemons struct {
	paths  rackfile.Paths
	fabric *direct.Fabric
	log    *slog.Logger

	mu      sync.Mutex               // guards running
	running map[string]chan struct{} // by node; a channel is closed when the node has ended
}

// Main is the shared process of the rack whose state folder is dir. It runs nodes for as long as their
// Stands ask for them, until ctx ends.
func Main(ctx context.Context, dir string) error {
	d := &daemons{
		paths: rackfile.Paths{Dir: dir}, fabric: direct.New(), running: make(map[string]chan struct{}),
		log: slog.New(slog.NewTextHandler(os.Stderr, nil)),
	}
	var m control.Mux
	control.Handle(&m, "POST /run/{node}", d.run)
	control.Handle(&m, "GET "+rack.PathEnded+"{node}", d.ended)
	control.Handle(&m, "GET /status", func(*http.Request, struct{}) (struct{}, error) { return struct{}{}, nil })
	srv, err := control.Serve(d.paths.Socket(rackfile.DaemonsName), &m)
	if err != nil {
		return err
	}
	<-ctx.Done()
	return srv.Close()
}

// run runs a node until the client has gone or the node has ended by itself. If the node still runs
// for a former client, run waits until that has ended.
func (d *daemons) run(r *http.Request, _ struct{}) (none struct{}, err error) {
	node := r.PathValue("node")
	if err := d.begin(r.Context(), node); err != nil {
		return none, err
	}
	defer d.end(node)
	out, err := os.OpenFile(d.paths.Log(node), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return none, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	d.log.Info("node begins", "name", node)
	err = d.serve(r.Context(), node, out)
	d.log.Info("node ends", "name", node, "error", err)
	return none, err
}

func (d *daemons) serve(ctx context.Context, node string, out io.Writer) error {
	netns := d.paths.Netns(node)
	if node == rackfile.SwitchName {
		at := switchd.Place{Dir: d.paths.Dir, Netns: netns, Fabric: d.fabric}
		return switchd.Main(ctx, at, log.New(out, "", log.LstdFlags|log.Lmicroseconds))
	}
	return hostd.Run(ctx, hostd.Config{
		Dir: d.paths.Dir, Name: node, Log: slog.New(slog.NewTextHandler(out, nil)), Netns: netns, Fabric: d.fabric,
	})
}

// begin waits until a node does not run, and notes that it runs now.
func (d *daemons) begin(ctx context.Context, node string) error {
	for {
		d.mu.Lock()
		former := d.running[node]
		if former == nil {
			d.running[node] = make(chan struct{})
		}
		d.mu.Unlock()
		if former == nil {
			return nil
		}
		select {
		case <-former:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (d *daemons) end(node string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	close(d.running[node])
	delete(d.running, node)
}

// ended returns when a node does not run.
func (d *daemons) ended(r *http.Request, _ struct{}) (none struct{}, err error) {
	d.mu.Lock()
	running := d.running[r.PathValue("node")]
	d.mu.Unlock()
	if running == nil {
		return none, nil
	}
	select {
	case <-running:
		return none, nil
	case <-r.Context().Done():
		return none, r.Context().Err()
	}
}

// Stand stands for the daemon of a node: it makes the shared process run the node until ctx ends. It
// returns an error if the node has ended by itself, or the shared process has ended.
func Stand(ctx context.Context, dir, node string) error {
	client := control.NewClient(rackfile.Paths{Dir: dir}.Socket(rackfile.DaemonsName))
	err := client.Call(ctx, http.MethodPost, "/run/"+node, nil, nil)
	if ctx.Err() != nil {
		return nil
	}
	return fmt.Errorf("%s: the shared process of the rack does not run it any more: %w", node, err)
}
