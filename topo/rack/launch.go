package rack

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/topo/crashlog"
)

// gateFD is the descriptor of the gate in a launched process. The gate is a pipe from which the
// process reads one byte before it does anything else (passGate). The controller writes the byte
// when it has added the process to the cgroup of its node.
const gateFD = 3

// errGate: a process was not admitted to the rack, because the controller that started it died or
// gave up.
var errGate = errors.New("was not let into the rack; such processes are started by rdmalab only")

// launcher starts the processes of nodes, also timers, in their namespaces and cgroups, and waits
// until their daemons answer.
type launcher struct {
	spec  *rackfile.Rack
	paths rackfile.Paths
	keep  keeper
	exe   string
}

func (r *Rack) launcher() launcher { return launcher{r.Spec, r.Paths, r.keep, r.exe} }

// launch calls start, which must start cmd, and then adds the new process to the cgroup of its
// node. The process must first call passGate, which waits until it was added. If the controller
// dies before that, passGate returns errGate. launch does not use clone3 with CLONE_INTO_CGROUP,
// because Linux kills a process that is made in a cgroup on which cgroup.kill was used earlier.
func (l launcher) launch(node string, cmd *exec.Cmd, start func() error) error {
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
	switch err = l.keep.adopt(node, cmd.Process.Pid); {
	case err == nil:
		_, err = open.Write([]byte{1})
	case errors.Is(err, unix.EINVAL) && l.spec.Priority == rackfile.PriorityRealtime:
		err = errRealtime // a cgroup without real-time runtime refuses a real-time process with EINVAL
	}
	if err = errors.Join(err, open.Close()); err != nil {
		_ = cmd.Process.Kill() // the process would also end by itself, because its gate is closed
		_ = cmd.Wait()         // the process was killed, so its status does not matter
		return fmt.Errorf("start %s: %w", node, err)
	}
	return nil
}

// spawn starts this program with args as a process of a node, in new namespaces as the clone flags
// say. The process goes on when the caller ends. Its output goes to the rack's log called log. spawn
// calls `around` with the function that starts the process.
func (l launcher) spawn(node, log string, flags uintptr, around func(start func() error) error, args ...string) error {
	if err := l.keep.prepare(node); err != nil {
		return err
	}
	file, err := os.OpenFile(l.paths.Log(log), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return fmt.Errorf("start %s: %w", log, err)
	}
	defer file.Close() // the process has its own descriptor of the file
	cmd := exec.Command(l.exe, args...)
	cmd.Args[0] = programName
	cmd.Dir, cmd.Stdout, cmd.Stderr = "/", file, file
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Setsid: true}
	err = l.launch(node, cmd, func() error { return around(cmd.Start) })
	if err == nil {
		go func() { _ = cmd.Wait() }() // reaps the process, if it ends before this program
	}
	return err
}

// here is the `around` of spawn for a process that starts in the caller's namespaces.
func here(start func() error) error { return start() }

// PassGate is passGate for a supervisor of crashlog, before it starts the process that does the work.
func PassGate() error { return passGate() }

// passGate waits until the controller has added the calling process to the cgroup of its node. It
// returns errGate if the controller has died or given up.
func passGate() error {
	if crashlog.Supervised() {
		return nil // its parent has passed it
	}
	gate := os.NewFile(gateFD, "gate")
	if gate == nil {
		return errGate
	}
	n, _ := gate.Read(make([]byte, 1)) // after an error, the number of bytes is 0
	if err := gate.Close(); err != nil || n != 1 {
		return errGate
	}
	return nil
}
