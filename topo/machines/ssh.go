package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/rackfile"
)

const (
	// connectWait bounds how long a machine may take to take a connection. A connection whose machine is
	// silent for aliveEvery three times ends.
	connectWait = 5 * time.Second
	aliveEvery  = 2 * time.Second
	// lostFor is how long a machine that did not answer is not asked again.
	lostFor = 2 * time.Second
	// pipesWait is how long a command whose ssh has ended, or was killed, waits for the end of its output: the
	// process that holds the connection has the pipes open until the command on the machine ends.
	pipesWait = 3 * time.Second
	// maxAnswer bounds what a command on a machine may print, if it is read here.
	maxAnswer = 16 << 20
	// sshFailed is the exit status of ssh itself; notFound that of a shell that finds no program.
	sshFailed, notFound = 255, 127
)

// conn is the connection to a machine.
type conn struct {
	machine rackfile.Machine
	rack    *rackfile.Rack
	paths   rackfile.Paths // of the client
}

// Unreachable is the error for a machine that does not answer.
type Unreachable struct{ Machine, Reason string }

func (e *Unreachable) Error() string {
	return fmt.Sprintf("machine %s does not answer: %s", e.Machine, e.Reason)
}

// args returns the arguments of ssh for a connection, before the command.
func (c *conn) args(more ...string) []string {
	l, _ := rackfile.ParseLogin(c.machine.SSH) // was checked when the rack file was read
	args := []string{
		"-o", "ControlPath=" + c.paths.SSH(c.machine.Name), "-o", "BatchMode=yes",
		"-o", "ConnectTimeout=" + seconds(connectWait), "-o", "ServerAliveInterval=" + seconds(aliveEvery),
	}
	if l.User != "" {
		args = append(args, "-l", l.User)
	}
	if l.Port != 0 {
		args = append(args, "-p", strconv.Itoa(int(l.Port)))
	}
	return append(append(args, more...), "--", l.Host)
}

func seconds(d time.Duration) string { return strconv.Itoa(int(d / time.Second)) }

// alive reports whether the connection is open.
func (c *conn) alive() bool {
	s, err := net.Dial("unix", c.paths.SSH(c.machine.Name))
	if err != nil {
		return false
	}
	_ = s.Close() // nothing was sent
	return true
}

// open opens the connection, unless it is open. Its process stays when this program ends. It forwards the
// control sockets of the machine's nodes.
func (c *conn) open(ctx context.Context) error {
	if c.alive() {
		return nil
	}
	unlock, err := c.lock()
	if err != nil {
		return err
	}
	defer unlock()
	if c.alive() {
		return nil // another command has opened it
	}
	flags := []string{"-M", "-N", "-f", "-o", "ControlPersist=yes", "-o", "StreamLocalBindUnlink=yes", "-o", "ExitOnForwardFailure=yes"}
	there := rackfile.PathsOf(c.rack.Name)
	for _, node := range append(c.rack.SwitchNames(), c.rack.NICNames()...) {
		if c.rack.MachineOf(node) == c.machine.Name {
			flags = append(flags, "-L", c.paths.Socket(node)+":"+there.Socket(node))
		}
	}
	if text, err := os.ReadFile(c.lost()); err == nil && c.justLost() {
		return &Unreachable{c.machine.Name, string(text)}
	}
	_ = os.Remove(c.paths.SSH(c.machine.Name)) // of a connection that was killed
	// The process that stays keeps the file open to which it writes; the end of a pipe would never come.
	said, err := os.CreateTemp(filepath.Dir(c.paths.SSH("x")), ".said-")
	if err != nil {
		return err
	}
	defer func() { _ = errors.Join(said.Close(), os.Remove(said.Name())) }()
	cmd := exec.CommandContext(ctx, "ssh", c.args(flags...)...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // an interrupt of this program does not end the connection
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(said.Name()) // without its text the error says less
		gone := c.unreachable(string(text), err)
		if ctx.Err() == nil {
			_ = os.WriteFile(c.lost(), []byte(gone.Reason), 0o600) // without it, the next attempt takes as long
		}
		return gone
	}
	return os.RemoveAll(c.lost())
}

// lost is the file that says why the machine did not answer. justLost reports whether that is so new that
// the parts of one command do not try again.
func (c *conn) lost() string { return c.paths.SSH(c.machine.Name) + ".lost" }

func (c *conn) justLost() bool {
	info, err := os.Stat(c.lost())
	return err == nil && time.Since(info.ModTime()) < lostFor
}

// lock holds other commands back that open the same connection.
func (c *conn) lock() (unlock func(), err error) {
	f, err := os.OpenFile(c.paths.SSH(c.machine.Name)+".lock", os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return func() { _ = f.Close() }, nil // closing it unlocks it
}

// unreachable makes the error for what ssh has said.
func (c *conn) unreachable(said string, err error) *Unreachable {
	said = strings.TrimSpace(said)
	lines := strings.Split(said, "\n")
	reason := strings.TrimSpace(lines[len(lines)-1])
	switch {
	case errors.Is(err, exec.ErrNotFound):
		reason = "this machine has no program ssh: install it (openssh-client)"
	case strings.Contains(said, "Host key verification failed"):
		reason = fmt.Sprintf("its host key is unknown or has changed: connect once by hand, ssh %s, and compare the key", c.machine.SSH)
	case strings.Contains(said, "Permission denied"):
		reason = fmt.Sprintf("it does not let you in (%s): give it your key, ssh-copy-id %s", reason, c.machine.SSH)
	case said == "":
		reason = err.Error()
	}
	return &Unreachable{c.machine.Name, reason}
}

// close ends the connection.
func (c *conn) close() error {
	if !c.alive() {
		return nil
	}
	out, err := exec.Command("ssh", c.args("-O", "exit")...).CombinedOutput()
	if err != nil && c.alive() {
		return fmt.Errorf("end of the connection to %s: %w (%s)", c.machine.Name, err, bytes.TrimSpace(out))
	}
	return nil
}

// remote returns the command of ssh that runs rdmalab on the machine, on its slice. With tty it has a
// terminal.
func (c *conn) remote(ctx context.Context, tty bool, args ...string) *exec.Cmd {
	words := []string{"env", rackfile.EnvSlice + "=1"}
	words = append(append(words, "rdmalab", "--rack", c.rack.Name), args...)
	for i := range words {
		words[i] = Quote(words[i])
	}
	flag := "-T"
	if tty {
		flag = "-t"
	}
	cmd := exec.CommandContext(ctx, "ssh", append(c.args("-o", "ControlMaster=no", flag), strings.Join(words, " "))...)
	cmd.WaitDelay = pipesWait
	return cmd
}

// Quote makes one word of a shell.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }

// run runs rdmalab on the machine, and returns what it prints. An error has what it says.
func (c *conn) run(ctx context.Context, in io.Reader, args ...string) ([]byte, error) {
	if err := c.open(ctx); err != nil {
		return nil, err
	}
	cmd := c.remote(ctx, false, args...)
	var out, said bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = in, &limited{&out}, &limited{&said}
	err := cmd.Run()
	return out.Bytes(), c.explain(ctx, err, said.String())
}

// explain makes the error of a command on the machine.
func (c *conn) explain(ctx context.Context, err error, said string) error {
	var exit *exec.ExitError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return fmt.Errorf("machine %s: %w", c.machine.Name, ctx.Err())
	case !errors.As(err, &exit), exit.ExitCode() == sshFailed, exit.ExitCode() < 0:
		return c.unreachable(said, err)
	case exit.ExitCode() == notFound:
		return fmt.Errorf("machine %s has no rdmalab in the PATH of its sshd: copy the program to /usr/local/bin there", c.machine.Name)
	}
	text := strings.TrimPrefix(strings.TrimSpace(said), "rdmalab: ")
	return fmt.Errorf("machine %s: %s", c.machine.Name, text)
}

// limited takes the first maxAnswer bytes.
type limited struct{ *bytes.Buffer }

func (w *limited) Write(b []byte) (int, error) {
	_, _ = w.Buffer.Write(b[:max(0, min(len(b), maxAnswer-w.Len()))]) // never fails
	return len(b), nil
}
