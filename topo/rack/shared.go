package rack

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"runtime"
	"time"

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

// startShared starts the process that runs all nodes, if the rack has one and it does not run.
func (l launcher) startShared(ctx context.Context) error {
	if !l.spec.Shared() {
		return nil
	}
	pids, err := l.keep.pids(sharedNode)
	if err != nil || len(processes(pids)) > 0 {
		return err
	}
	around := func(start func() error) error {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		return l.prioritised(start)
	}
	if err := l.spawn(sharedNode, rackfile.DaemonsName, 0, around, "daemons", "--rack-dir", l.paths.Dir); err != nil {
		return err
	}
	return l.waitAnswer(ctx, rackfile.DaemonsName, sharedNode)
}

// sharedProcess is how a command speaks to the process that runs all nodes of a rack with
// rackfile.DaemonsShared. On other racks `on` is false, and its methods do nothing.
type sharedProcess struct {
	on     bool
	client *control.Client
}

func (r *Rack) shared() sharedProcess {
	return sharedProcess{r.Spec.Shared(), r.Control(rackfile.DaemonsName)}
}

// hold makes the process stop a node's part of it, or let that go on.
func (p sharedProcess) hold(node string, on bool) error {
	if !p.on {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerWait)
	defer cancel()
	return p.client.Call(ctx, http.MethodPost, PathHold+node, Hold{On: on}, nil)
}

// answers reports whether the process answers a request.
func (p sharedProcess) answers() bool {
	ctx, cancel := context.WithTimeout(context.Background(), aliveWait)
	defer cancel()
	return p.client.Call(ctx, http.MethodGet, "/status", nil, nil) == nil
}

// aliveWait bounds how long the process may take to answer a request for nothing.
const aliveWait = 500 * time.Millisecond

// awaitEnd waits until the process has ended a node whose own processes were killed, for at most bound.
func (p sharedProcess) awaitEnd(node string, bound time.Duration) error {
	if !p.on {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), bound)
	defer cancel()
	err := p.client.Call(ctx, http.MethodGet, PathEnded+node, nil, nil)
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
