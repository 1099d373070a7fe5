package rack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
)

// sharedNode is the node of the process that runs all nodes of a rack with rackfile.DaemonsShared. The
// keeper treats it as a timer; no timer has this name (see watcherNode).
var sharedNode = timerNode("daemons.shared")

// PathEnded is the path, followed by the name of a node, of a GET that the shared process answers when
// the node has ended.
const PathEnded = "/ended/"

func (r *Rack) shared() bool { return r.Spec.Daemons == rackfile.DaemonsShared }

// startShared starts the shared process if the rack has one and it does not run.
func (r starter) startShared(ctx context.Context) error {
	if !r.shared() {
		return nil
	}
	pids, err := r.keep.pids(sharedNode)
	if err != nil || len(processes(pids)) > 0 {
		return err
	}
	around := func(start func() error) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return r.prioritised(start)
	}
	if err := r.spawn(sharedNode, rackfile.DaemonsName, 0, around, "daemons", "--rack-dir", r.Paths.Dir); err != nil {
		return err
	}
	return r.waitAnswer(ctx, rackfile.DaemonsName, sharedNode)
}

// awaitEnd waits until the shared process has ended a node whose processes were killed.
func (r *Rack) awaitEnd(node string) error {
	if !r.shared() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	err := r.Control(rackfile.DaemonsName).Call(ctx, http.MethodGet, PathEnded+node, nil, nil)
	if err == nil || errors.Is(err, control.ErrNotRunning) {
		return nil
	}
	return fmt.Errorf("end of %s in the shared process: %w", node, err)
}

// RunShared runs main, the shared process of a rack, after the rack has let this process in.
func RunShared(main func() error) error {
	if err := passGate(); err != nil {
		return err
	}
	return main()
}
