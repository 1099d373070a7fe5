package rack

import (
	"os"
	"os/signal"

	"golang.org/x/sys/unix"
)

// terminal is the caller's terminal. Exec lends it to the process group of the program that it
// runs, as a shell does for its jobs. That program gets a process group of its own instead of
// rdmalab's, because it is in another pid namespace, where rdmalab's group has no id: a shell that
// runs there could not make rdmalab's group the foreground group again when it exits.
type terminal struct{ fd, own int }

// foreground returns the terminal at standard input; nil if this process is not in the terminal's
// foreground.
func foreground() *terminal {
	t := &terminal{fd: int(os.Stdin.Fd()), own: unix.Getpgrp()}
	if group, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err != nil || group != t.own {
		return nil
	}
	return t
}

// lend makes a process group the terminal's foreground.
func (t *terminal) lend(group int) error {
	// This process is now in the background. When a background process takes the terminal back, the
	// kernel sends it SIGTTOU, which would stop it. So this process ignores SIGTTOU.
	signal.Ignore(unix.SIGTTOU)
	return unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, group)
}

// takeBack makes this process group the foreground again.
func (t *terminal) takeBack() {
	_ = unix.IoctlSetPointerInt(t.fd, unix.TIOCSPGRP, t.own) // the terminal may have been hung up
}

// suspend stops this process. It is called after the program was stopped. When the shell continues
// this process, suspend continues the program.
func (t *terminal) suspend(group int) {
	t.takeBack()
	_ = unix.Kill(unix.Getpid(), unix.SIGSTOP)
	if now, err := unix.IoctlGetInt(t.fd, unix.TIOCGPGRP); err == nil && now == t.own {
		_ = t.lend(group) // fails only as in takeBack
	}
	_ = unix.Kill(-group, unix.SIGCONT) // the program may have ended already
}

// terminalSends reports whether a terminal sends s to its whole foreground group. If so, the
// program has already received the signal.
func terminalSends(s os.Signal) bool {
	if s != unix.SIGINT && s != unix.SIGQUIT {
		return false
	}
	tty, err := os.OpenFile("/dev/tty", os.O_RDONLY|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err != nil {
		return false
	}
	defer tty.Close() // the terminal is opened only to read its process group
	group, err := unix.IoctlGetInt(int(tty.Fd()), unix.TIOCGPGRP)
	return err == nil && group == unix.Getpgrp()
}
