package rack

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the caller's terminal. Exec lends it to the process group of the program that it
// runs, as a shell does for its jobs. The program gets a process group for itself: it is in another
// pid namespace, where rdmalab's group has no number. If a shell ran there in rdmalab's group, it
// could not make that group the foreground group again when it exits.
type terminal struct{ fd, own int }

// foreground returns the terminal at standard input, or nil if standard input is no terminal or
// this process is not in the terminal's foreground group.
func foreground() *terminal {
	t := &terminal{fd: int(os.Stdin.Fd()), own: unix.Getpgrp()}
	if group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil || group != t.own {
		return nil
	}
	return t
}

// lend makes a process group the foreground group of the terminal.
func (t *terminal) lend(group int) error {
	// This process is in the background now. When a background process takes the terminal back, the
	// kernel sends it SIGTTOU, which would stop it. So this process ignores SIGTTOU.
	signal.Ignore(unix.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

func (t *terminal) takeBack() {
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) // an error means that the terminal is gone
}

// suspend is called when the program has stopped, for example by Ctrl-Z. It stops this process,
// too. When the shell continues this process, suspend continues the program.
func (t *terminal) suspend(group int) {
	t.takeBack()
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	if now, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && now == t.own {
		_ = t.lend(group) // fails only if the terminal is gone
	}
	_ = unix.Kill(-group, unix.SIGCONT) // the program may have ended already
}

// terminalSends reports whether the terminal has sent signal s to its whole foreground group, to
// which the program belongs. Then the program has received the signal already.
func terminalSends(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close() // the terminal is opened only to learn its foreground group
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
