package afpacket

import (
	"errors"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// parker sleeps on an epoll descriptor, and is itself woken by the Go runtime's poller.
//
// It is cheaper than a blocking epoll_wait. Moreover, a goroutine that blocks in a system call
// keeps its processor (P of the Go scheduler) until the runtime notices that; until then, an
// application goroutine that it has just woken does not run. From a frame's arrival to the
// application, through a channel, 15 µs were measured with a parker and 46 µs with a system call.
//
// A timer of the kernel among the descriptors bounds a sleep, and not a deadline of the runtime's poller: that rounds
// times up to a millisecond while the whole process is idle.
type parker struct {
	file *os.File
	conn syscall.RawConn
	// timer is a timerfd, whose expiry causes an event with the ID aTimer; due is when it expires, zero
	// if it is not set.
	timer int
	due   time.Time
	// look stores events that have occurred in the slice events, their number in n, and an error in
	// err. It returns false if no event has occurred yet.
	events []unix.EpollEvent
	n      int
	err    error
	look   func(uintptr) bool
}

// newParker returns a parker that sleeps on epfd and owns it, as soon as there is no error: close closes epfd.
func newParker(epfd int) (*parker, error) {
	if err := unix.SetNonblock(epfd, true); err != nil {
		return nil, err
	}
	timer, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, err
	}
	// Edge-triggered, because the parker does not read the timer.
	if err := unix.EpollCtl(epfd, unix.EPOLL_CTL_ADD, timer, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: aTimer}); err != nil {
		return nil, errors.Join(err, unix.Close(timer))
	}
	p := &parker{file: os.NewFile(uintptr(epfd), "epoll"), timer: timer}
	p.conn, _ = p.file.SyscallConn() // fails only without a file
	p.look = func(fd uintptr) bool {
		p.n, p.err = epollNow(fd, p.events)
		if errors.Is(p.err, unix.EINTR) {
			p.err = nil
			return true
		}
		return p.n != 0 || p.err != nil // false makes the goroutine sleep
	}
	return p, nil
}

// wait sleeps until there are events, at most d (negative: no limit), and returns their number. It
// may return early, without events or with that of the timer alone.
func (p *parker) wait(events []unix.EpollEvent, d time.Duration) (int, error) {
	p.events, p.n, p.err = events, 0, nil
	if d >= 0 {
		if err := p.alarm(d); err != nil {
			return 0, err
		}
	}
	if err := p.conn.Read(p.look); err != nil {
		return 0, err
	}
	return max(p.n, 0), p.err
}

// alarm makes the timer expire in d, or earlier: a timer that expires before costs one look that finds nothing, which is
// cheaper than to set it for each sleep, because most sleeps end by a frame long before.
func (p *parker) alarm(d time.Duration) error {
	now := time.Now()
	if at := now.Add(d); !p.due.After(now) || p.due.After(at) {
		p.due = at
		spec := unix.ItimerSpec{Value: unix.NsecToTimespec(max(1, d.Nanoseconds()))}
		return unix.TimerfdSettime(p.timer, 0, &spec, nil)
	}
	return nil
}

func (p *parker) close() error { return errors.Join(p.file.Close(), unix.Close(p.timer)) }
