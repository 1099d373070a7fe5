package rack

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the caller's terminal, lent to the process group of a program that Exec runs, as a
// shell does with its jobs. A program in other namespaces cannot share our group: a shell there
// could not name it when it hands the terminal back.
type terminal struct{ fd, own int }

// foreground is the terminal at standard input if it is ours to lend, else nil.
func foreground() *terminal {
	t := &terminal{fd: int(os.Stdin.Fd()), own: unix.Getpgrp()}
	if group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil || group != t.own {
		return nil
	}
	return t
}

// lend makes a process group the terminal's foreground.
func (t *terminal) lend(group int) error {
	// From now on we are in the background until we take it back, which the kernel would stop us
	// for.
	signal.Ignore(unix.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

// takeBack makes us the foreground again.
func (t *terminal) takeBack() {
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) // the terminal may have been hung up
}

// suspend does with us what was done with the program: we stop until our shell continues us, then
// the program does.
func (t *terminal) suspend(group int) {
	t.takeBack()
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	if now, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && now == t.own {
		_ = t.lend(group) // as above
	}
	_ = unix.Kill(-group, unix.SIGCONT) // it may be gone already
}

// terminalSends says whether a terminal sends s to all of its foreground, to which the program
// belongs if we do.
func terminalSends(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close() // only asked
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
