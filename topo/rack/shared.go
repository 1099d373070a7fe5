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

// PathHold is the path, followed by the name of a node, of a POST that makes the part of the shared
// process which belongs to the node stop, or go on (Hold).
const PathHold = "/hold/"

// Hold is the body of a request to PathHold.
type Hold struct {
	On bool `json:"on"`
}

// PathEnded is the path, followed by the name of a node, of a GET that the shared process answers when
// the node has ended.
const PathEnded = "/ended/"

// sharedProcess is the process that runs all nodes of a rack with rackfile.DaemonsShared. On other
// racks its methods do nothing.
type sharedProcess struct{ r *Rack }

func (p sharedProcess) exists() bool { return p.r.Spec.Daemons == rackfile.DaemonsShared }

// start starts the process if it does not run.
func (p sharedProcess) start(ctx context.Context) error {
	r := p.r.starter()
	if !p.exists() {
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

// hold makes the process stop a node's part of it, or let that go on.
func (p sharedProcess) hold(node string, on bool) error {
	if !p.exists() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	return p.r.Control(rackfile.DaemonsName).Call(ctx, http.MethodPost, PathHold+node, Hold{On: on}, nil)
}

// awaitEnd waits until the process has ended a node whose own processes were killed.
func (p sharedProcess) awaitEnd(node string) error {
	if !p.exists() {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), killWait)
	defer cancel()
	err := p.r.Control(rackfile.DaemonsName).Call(ctx, http.MethodGet, PathEnded+node, nil, nil)
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
