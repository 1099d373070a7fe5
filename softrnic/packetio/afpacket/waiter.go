package afpacket

import (
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/stall"
)

// Source is a source of frames that is not a packet socket: a port of package memlink.
type Source interface {
	// Ready reports whether there are frames. It makes no system call.
	Ready() bool
	// Sleeping(true) is called before the Waiter sleeps: frames that arrive later cause an event of
	// Bell. Sleeping(false) is called when it has woken.
	Sleeping(on bool)
	// Bell returns a descriptor for epoll, which stays the same until the source is closed; then
	// -1. The Waiter does not read it.
	Bell() int
}

// Waiter waits for frames on any of its ports and sources.
//
// It first polls the rings for a while, at the pace of package pollpace, and then sleeps (see
// parker). After a long sleep the next calls of Wait poll for a shorter time, until a frame arrives
// so soon that polling would have found it: a port that has had no frames for long will probably
// get none soon, and empty polls take processor time from busy threads.
type Waiter struct {
	spin    time.Duration // how long a Wait polls at most before it sleeps
	ports   []*Port
	sources []Source

	// woken is set by Wake, and cleared when a Wait has noticed that. blocked is set while a Wait
	// may sleep: Wake must then write to the eventfd.
	woken, blocked, closed atomic.Bool

	// waitMu is held during a Wait.
	waitMu  sync.Mutex
	budget  time.Duration // how long the next Wait polls
	spinner pollpace.Spinner
	events  []unix.EpollEvent
	park    *parker

	// fdMu guards the descriptors against Close.
	fdMu       sync.Mutex
	epfd, evfd int
}

// NewWaiter returns a waiter for ports. It polls for the time budget before it sleeps; 0 means that
// it sleeps at once.
func NewWaiter(budget time.Duration, ports ...*Port) (*Waiter, error) {
	return NewWaiterBeside(nil, budget, ports...)
}

// NewWaiterBeside is NewWaiter for ports and other sources.
func NewWaiterBeside(sources []Source, budget time.Duration, ports ...*Port) (*Waiter, error) {
	w := &Waiter{
		spin: budget, budget: budget, ports: ports, sources: sources, epfd: -1, evfd: -1,
		events: make([]unix.EpollEvent, len(ports)+len(sources)+2),
	}
	if err := w.open(); err != nil {
		return nil, errors.Join(fmt.Errorf("afpacket waiter: %w", err), w.Close())
	}
	return w, nil
}

func (w *Waiter) open() (err error) {
	if w.epfd, err = unix.EpollCreate1(unix.EPOLL_CLOEXEC); err != nil {
		return err
	}
	if w.evfd, err = unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK); err != nil {
		return err
	}
	if err := w.add(w.evfd, ownEvent); err != nil {
		return err
	}
	for _, s := range w.sources {
		if err := w.addBell(s.Bell()); err != nil {
			return err
		}
	}
	for i, p := range w.ports {
		if err := p.attachWaiter(w, i); err != nil {
			return err
		}
	}
	w.park, err = newParker(w.epfd)
	return err
}

// IDs of events that do not belong to a port: ownEvent is the ID of the waiter's eventfd, aBell
// that of the bells of all sources, aTimer that of the parker's timer.
const (
	ownEvent = -1
	aBell    = -2
	aTimer   = -3
)

// addBell watches the bell of a source. It does so edge-triggered, because the waiter does not read
// the bell.
func (w *Waiter) addBell(fd int) error {
	if fd < 0 {
		return ErrClosed
	}
	return unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: aBell})
}

// add watches fd; its events have the given id.
func (w *Waiter) add(fd, id int) error {
	return unix.EpollCtl(w.epfd, unix.EPOLL_CTL_ADD, fd, &unix.EpollEvent{Events: unix.EPOLLIN, Fd: int32(id)})
}

// attachWaiter makes w watch p, until either is closed.
func (p *Port) attachWaiter(w *Waiter, id int) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.fd < 0 {
		return ErrClosed
	}
	p.waiters = append(p.waiters, w)
	return w.add(p.fd, id)
}

func (p *Port) detachWaiter(w *Waiter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.waiters = slices.DeleteFunc(slices.Clone(p.waiters), func(x *Waiter) bool { return x == w })
}

// detach stops watching a port that is being closed.
func (w *Waiter) detach(fd int) {
	w.fdMu.Lock()
	defer w.fdMu.Unlock()
	if w.epfd >= 0 {
		_ = unix.EpollCtl(w.epfd, unix.EPOLL_CTL_DEL, fd, nil) // closing its last descriptor removes it anyway
	}
}

// Wait returns when a port has frames, Wake was called, or d has passed; d < 0 means no limit, 0
// does not wait.
func (w *Waiter) Wait(d time.Duration) error {
	w.waitMu.Lock()
	defer w.waitMu.Unlock()
	if w.closed.Load() {
		return ErrClosed
	}
	if w.pending() || d == 0 {
		return nil
	}
	start := time.Now()
	if w.look(start, d) {
		return nil
	}
	return w.sleep(start, d)
}

// leastBudget is the divisor for the shortest polling time: after long sleeps, a Wait still polls
// for an eighth of the spin time.
const leastBudget = 8

// look polls until it has spent the budget, or until d has passed since start, and reports whether
// a frame has arrived. The time in which other processes run while look yields the CPU does not
// count: one of them may send the awaited frame, and need not wake this thread if it still polls.
func (w *Waiter) look(start time.Time, d time.Duration) bool {
	if w.budget <= 0 || !w.spinner.Begin() {
		return false
	}
	for w.spinner.Spent() < w.budget && (d < 0 || time.Since(start) < d) {
		crowded := w.spinner.Pause()
		if w.pending() {
			w.budget = w.spin
			w.spinner.Found()
			return true
		}
		if crowded {
			return false
		}
	}
	return false
}

// adapt sets the budget for the next Wait. It is called after a Wait that slept and took d,
// including the time to wake up. If d was less than twice the longest time of polling (spin), the
// next Wait polls for that time, otherwise half as long as this Wait.
func (w *Waiter) adapt(d time.Duration) {
	if d < 2*w.spin {
		w.budget = w.spin
	} else {
		w.budget = max(w.budget/2, w.spin/leastBudget)
	}
}

// sleep blocks until there is a frame or a Wake, a port has ended, or d has passed since start.
// A negative d means no limit.
func (w *Waiter) sleep(start time.Time, d time.Duration) error {
	w.blocked.Store(true)
	defer w.blocked.Store(false)
	w.sleeping(true)
	defer w.sleeping(false)
	for {
		if w.pending() { // a Wake that was called before blocked was set has written no event
			return nil
		}
		left := w.longest()
		if d > 0 {
			rest := d - time.Since(start)
			if rest <= 0 {
				return nil
			}
			if left < 0 || rest < left {
				left = rest
			}
		}
		woken, err := w.block(left)
		if woken || err != nil || w.checkDown() {
			w.adapt(time.Since(start))
			w.checkLate()
			return err
		}
	}
}

// checkLate notes a stall of the process if a frame has waited long for this thread to wake.
func (w *Waiter) checkLate() {
	for _, p := range w.ports {
		if at, ok := p.rx.arrived(); ok {
			now := time.Now()
			if d := now.Sub(at); d < longestStall {
				stall.OfProcess.Took(now, d)
				return
			}
		}
	}
}

// longestStall is the longest that checkLate believes: the time of a frame can be wrong (ring.arrived).
const longestStall = time.Hour

// sleeping informs the sources that this waiter begins or ends its sleep.
func (w *Waiter) sleeping(on bool) {
	for _, s := range w.sources {
		s.Sleeping(on)
	}
}

// pending reports whether the waiter must not sleep: because there are frames, or because Wake was
// called. In the second case it resets the flag of Wake.
func (w *Waiter) pending() bool {
	if w.woken.Load() && w.woken.Swap(false) {
		return true
	}
	for _, p := range w.ports {
		if p.rx.ready() {
			return true
		}
	}
	for _, s := range w.sources {
		if s.Ready() {
			return true
		}
	}
	return false
}

// downPoll is the interval at which a sleeping waiter checks whether an interface that is down
// still exists.
const downPoll = 50 * time.Millisecond

// longest returns the longest time to sleep, -1 if there is no limit.
func (w *Waiter) longest() time.Duration {
	for _, p := range w.ports {
		if p.down.Load() {
			return downPoll
		}
	}
	return -1
}

// checkDown reports whether the interface of a port that was down was removed.
func (w *Waiter) checkDown() bool {
	for _, p := range w.ports {
		if p.down.Load() && p.check() != nil {
			return true
		}
	}
	return false
}

// check returns an error if the port has ended, for example because the interface was removed.
// Unlike checkGone it takes the lock.
func (p *Port) check() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.checkGone()
}

// block sleeps up to d, handles the event that woke it, and reports whether the Wait ends. An event
// of Wake does not end the Wait if the method pending has seen the same Wake before.
func (w *Waiter) block(d time.Duration) (woken bool, err error) {
	n, err := w.park.wait(w.events, d)
	for _, ev := range w.events[:n] {
		switch ev.Fd {
		case ownEvent:
			clearEvent(w.evfd)
			woken = w.woken.Swap(false) || woken
			continue
		case aTimer:
			continue // sleep looks whether its time is over
		}
		woken = true
		if ev.Fd >= 0 && ev.Events&(unix.EPOLLERR|unix.EPOLLHUP) != 0 {
			_ = w.ports[ev.Fd].check() // if the port has ended, the next Recv reports that
		}
	}
	return woken, err
}

// Wake ends the current or the next Wait.
func (w *Waiter) Wake() {
	w.woken.Store(true)
	if !w.blocked.Load() {
		return
	}
	w.fdMu.Lock()
	defer w.fdMu.Unlock()
	if w.evfd >= 0 {
		setEvent(w.evfd)
	}
}

// Close ends a Wait and releases the waiter's descriptors. The ports stay open.
func (w *Waiter) Close() error {
	if w.closed.Swap(true) {
		return nil
	}
	w.Wake()
	w.waitMu.Lock()
	defer w.waitMu.Unlock()
	for _, p := range w.ports {
		p.detachWaiter(w)
	}
	w.fdMu.Lock()
	defer w.fdMu.Unlock()
	var errs []error
	switch {
	case w.park != nil:
		errs = append(errs, w.park.close())
	case w.epfd >= 0:
		errs = append(errs, unix.Close(w.epfd))
	}
	if w.evfd >= 0 {
		errs = append(errs, unix.Close(w.evfd))
	}
	w.epfd, w.evfd = -1, -1
	return errors.Join(errs...)
}
