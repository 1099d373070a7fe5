package serve

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// Poller is a thread that looks at the rings of the programs of several NICs of one process, in
// place of a pump for each of them. It is for NICs whose frames are carried on by the threads that
// send them (packetio.Carrier): the Poller takes a post, and the same thread then brings the packets
// to the other NICs and the completions of all of them to the programs. While a program and the
// Poller are awake, neither makes a system call for the other.
//
// After its spin time without a post, the Poller sleeps. A program that posts then wakes it by one
// message.
type Poller struct {
	spin  time.Duration
	procs int // processors that the process may use
	epoll int // watches the wake sockets of all programs, and stir
	stir  int // an eventfd that ends the sleep
	done  chan struct{}
	ended atomic.Bool
	// Used by the thread alone.
	pace    pollpace.Spinner
	counted time.Time // when programs were last counted

	// mu guards the fields below. The thread holds it for reading while it looks at rings, so that
	// their memory stays mapped.
	mu     sync.RWMutex
	ports  []*port
	asleep bool
}

// NewPoller starts a Poller. It polls for the duration spin after the last post before it sleeps;
// negative: no polling.
func NewPoller(spin time.Duration) (*Poller, error) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("ipc: poller: %w", err)
	}
	stir, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ipc: poller: %w", err), unix.Close(ep))
	}
	p := &Poller{spin: spin, procs: runtime.NumCPU(), epoll: ep, stir: stir, done: make(chan struct{})}
	if err := p.watch(stir); err != nil {
		return nil, errors.Join(err, unix.Close(ep), unix.Close(stir))
	}
	go p.run()
	return p, nil
}

// Close ends the thread. The servers that use the Poller must be closed before.
func (p *Poller) Close() error {
	if p.ended.Swap(true) {
		return nil
	}
	p.wake()
	<-p.done
	return errors.Join(unix.Close(p.epoll), unix.Close(p.stir))
}

// watch makes messages at a socket end the sleep.
func (p *Poller) watch(fd int) error {
	ev := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET&0xffffffff, Fd: int32(fd)}
	if err := unix.EpollCtl(p.epoll, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		return fmt.Errorf("ipc: poller: %w", err)
	}
	return nil
}

// wake ends the present or the next sleep.
func (p *Poller) wake() {
	_, _ = unix.Write(p.stir, []byte{1, 0, 0, 0, 0, 0, 0, 0}) // fails only if the sleep is ended already
}

// add makes the thread look at the rings of a port.
func (p *Poller) add(q *port) error {
	p.mu.Lock()
	defer p.mu.Unlock()
	err := withFD(q.c.wake, func(fd int) error {
		q.wakeFD = fd
		return p.watch(fd)
	})
	if err != nil {
		return err
	}
	p.ports = append(slices.Clip(p.ports), q)
	if p.asleep {
		q.ctl.Asleep.Store(1)
	}
	return nil
}

// remove ends that. After it, the thread does not access the port's memory.
func (p *Poller) remove(q *port) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ports = slices.DeleteFunc(slices.Clone(p.ports), func(o *port) bool { return o == q })
	_ = withFD(q.c.wake, func(fd int) error { return unix.EpollCtl(p.epoll, unix.EPOLL_CTL_DEL, fd, nil) }) // fails if add has failed
}

// withFD calls f with the descriptor of a file.
func withFD(file *os.File, f func(fd int) error) error {
	raw, err := file.SyscallConn()
	if err != nil {
		return err
	}
	cerr := raw.Control(func(fd uintptr) { err = f(int(fd)) })
	return errors.Join(err, cerr)
}

func (p *Poller) run() {
	defer close(p.done)
	runtime.LockOSThread()
	for !p.ended.Load() {
		p.poll()
		p.sleep()
	}
}

// looks is how many times in a row the thread finds all rings empty before it yields the
// processor.
const looks = 32

// poll looks at the rings until they were empty for the spin time, without the time in which other
// threads had the processor, or until another process keeps the processor.
func (p *Poller) poll() {
	patient := p.pace.Begin() && p.spin > 0
	looked := 0
	for vain := 0; !p.ended.Load(); vain++ {
		if looked++; looked%countEvery == 0 {
			p.count(time.Now())
		}
		switch found, _ := p.look(); {
		case found:
			if vain > 0 {
				p.pace.Found()
			}
			vain = -1
			continue
		case !patient:
			return
		case vain < looks:
			continue
		case vain == looks:
			if patient = p.pace.Begin(); !patient {
				return
			}
		}
		if p.pace.Pause() || p.pace.Spent() >= p.spin {
			return
		}
	}
}

// look serves the bells that programs have rung. busy says that it has left some alone, because
// another thread is inside their NIC.
func (p *Poller) look() (found, busy bool) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	for _, q := range p.ports {
		if !q.ctl.Rung() {
			continue
		}
		q.load.rang = true
		if q.c.s.pump.attempt(q) {
			found = true
		} else {
			busy = true
		}
	}
	return found, busy
}

// busyWait is how long the thread sleeps if a bell was rung, but another thread keeps the NIC; that
// of a host that hangs is kept for long.
const busyWait = time.Millisecond

// countEvery is the number of looks between two questions whether it is time to count the programs at
// work, countTime the time between two counts, and workTime how long a program is at work after a post
// or an empty poll.
const (
	countEvery = 256
	countTime  = time.Millisecond
	workTime   = 20 * time.Millisecond
)

// portLoad says whether a program is at work.
type portLoad struct {
	rang  bool      // it has rung a bell since the last count
	polls uint64    // Control.Polls at the last count
	last  time.Time // of the last count that found it at work
}

// atWork reports whether the program was at work a short time before now.
func (l *portLoad) atWork(now time.Time, polls uint64) bool {
	if l.rang || polls != l.polls {
		l.rang, l.polls, l.last = false, polls, now
	}
	return now.Sub(l.last) < workTime
}

// count counts the programs at work, and tells them whether they and this thread are more than there
// are processors.
func (p *Poller) count(now time.Time) {
	if now.Sub(p.counted) < countTime {
		return
	}
	p.counted = now
	p.mu.RLock()
	defer p.mu.RUnlock()
	working := 1 // this thread
	for _, q := range p.ports {
		if q.load.atWork(now, q.ctl.Polls.Load()) {
			working++
		}
	}
	crowded := uint64(0)
	if working > p.procs {
		crowded = 1
	}
	for _, q := range p.ports {
		if q.ctl.Crowded.Load() != crowded {
			q.ctl.Crowded.Store(crowded)
		}
	}
}

// sleep waits until a program wakes the thread, or the method wake is called.
func (p *Poller) sleep() {
	p.setAsleep(true)
	found, busy := p.look() // what was posted before the programs could know that the thread sleeps
	wait := -1
	switch {
	case found:
		wait = 0
	case busy:
		wait = int(busyWait / time.Millisecond)
	}
	var events [16]unix.EpollEvent
	if n, err := unix.EpollWait(p.epoll, events[:], wait); err == nil {
		p.drain(events[:n])
	}
	p.setAsleep(false)
}

// drain reads the messages that have ended the sleep. The socket of a program that has left meanwhile is
// closed, and its number can be that of another file: with mu held, the sockets of ports are theirs.
func (p *Poller) drain(events []unix.EpollEvent) {
	p.mu.RLock()
	defer p.mu.RUnlock()
	var b [256]byte
	for _, ev := range events {
		fd := int(ev.Fd)
		if fd == p.stir {
			_, _ = unix.Read(fd, b[:8]) // it does not block
			continue
		}
		if !slices.ContainsFunc(p.ports, func(q *port) bool { return q.wakeFD == fd }) {
			continue
		}
		// What stays unread ends no further sleep, because the epoll set is edge-triggered; a new message does.
		for range maxDrained {
			if _, _, err := unix.Recvfrom(fd, b[:], unix.MSG_DONTWAIT); err != nil {
				break // none is left, or the program has ended
			}
		}
	}
}

// maxDrained is how many messages of a program one sleep reads at most, so that a program that writes without
// end does not keep the thread.
const maxDrained = 64

// setAsleep tells the programs whether they must wake the thread.
func (p *Poller) setAsleep(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.asleep = on
	v := uint64(0)
	if on {
		v = 1
	}
	for _, q := range p.ports {
		q.ctl.Asleep.Store(v)
	}
}

// Trier is a Shell that several NICs of a process share a Poller over.
type Trier interface {
	verbsengine.Shell
	// TryEnter is Enter, except that it returns false if another thread is inside the NIC.
	TryEnter() (now clock.Time, e *engine.Engine, out *packetio.Batch, ok bool)
}

// attempt serves the bells that an application has rung, unless another thread is inside the NIC:
// then it returns false.
func (s *pump) attempt(p *port) bool {
	now, e, out, ok := s.trier.TryEnter()
	if !ok {
		return false
	}
	defer s.shell.Leave()
	if p.serve(now, out) {
		s.carry(e)
	}
	return true
}

// attend waits in place of run if a Poller looks at the rings, until the method end is called. The
// threads inside the NIC meanwhile call Ready, which copies completions.
func (s *pump) attend(stop <-chan struct{}) {
	if err := s.shell.Await((*attending)(s), clock.Never); err != nil {
		s.bury() // the device was closed before the server ended
		<-stop
	}
}

// attending is the condition that ends attend.
type attending pump

var _ verbsengine.Patient = (*attending)(nil)

func (a *attending) Patient() bool { return true }

// Ready copies completions, and reports whether the server has ended.
func (a *attending) Ready(e *engine.Engine) bool {
	s := (*pump)(a)
	s.carry(e)
	return s.ended
}
