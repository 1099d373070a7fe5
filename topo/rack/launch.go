package rack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
)

// gateFD is the descriptor of the gate: a pipe on which a launched process waits for one byte, sent
// once it is a part of its node (passGate).
const gateFD = 3

// errGate: a process was not let into the rack, because the controller that started it died or gave
// up.
var errGate = errors.New("was not let into the rack; such processes are started by rdmalab only")

// starter starts the processes of nodes in their namespaces and cgroups, and waits until their
// daemons answer.
type starter struct{ *Rack }

func (r *Rack) starter() starter { return starter{r} }

// launch starts cmd by start and makes it a part of a node before it does anything. The process
// must call passGate first. clone3 is not used to put the process into its cgroup, because Linux
// kills processes that clone3 puts into a cgroup which was killed as a whole before. The gate also
// ends the process if the controller dies in between.
func (r starter) launch(node string, cmd *exec.Cmd, start func() error) error {
	gate, open, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("start %s: %w", node, err)
	}
	cmd.ExtraFiles = []*os.File{gate}
	err = start()
	err = errors.Join(err, gate.Close())
	if err != nil {
		return errors.Join(fmt.Errorf("start %s: %w", node, err), open.Close())
	}
	if err = r.keep.adopt(node, cmd.Process.Pid); err == nil {
		_, err = open.Write([]byte{1})
	}
	if err = errors.Join(err, open.Close()); err != nil {
		_ = cmd.Process.Kill() // the closed gate ends it anyway
		_ = cmd.Wait()         // it was killed
		return fmt.Errorf("start %s: %w", node, err)
	}
	return nil
}

// detach lets a launched process run without the controller.
func detach(cmd *exec.Cmd) {
	go func() { _ = cmd.Wait() }() // only reaps the process while this program runs
}

// passGate waits until the calling process is a part of its node.
func passGate() error {
	gate := os.NewFile(gateFD, "gate")
	if gate == nil {
		return errGate
	}
	n, _ := gate.Read(make([]byte, 1)) // only the number of bytes matters
	if err := gate.Close(); err != nil || n != 1 {
		return errGate
	}
	return nil
}
