package plugin

import (
	"errors"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

// loop runs a kvcs.Machine on a UDP socket. A thread receives datagrams and handles timers; another
// one executes REKEYs, one after the other. Both stop while the host's programs hang.
type loop struct {
	conn  *net.UDPConn
	now   func() clock.Time
	awake func()
	// rekey executes a REKEY and blocks until it has ended. When a REKEY has ended, rekeyed hands
	// its status to the machine. Both are nil for a machine that issues no REKEYs.
	rekey   func(*kvcs.Rekey) nic.Status
	rekeyed func(now clock.Time, tag uint64, s nic.Status, out *kvcs.Outbox)
	wg      sync.WaitGroup
	due     chan kvcs.Rekey

	mu     sync.Mutex // guards the fields below, and Machine
	box    kvcs.Outbox
	behind []kvcs.Rekey // REKEYs that wait because the channel `due` is full
	closed bool
	kvcs.Machine
}

// maxRekeys is how many REKEYs wait in the channel; a machine has at most one in progress for each
// server.
const maxRekeys = kvcs.MaxReplicas

// receiveBuffer is the size of a socket's buffer that a loop asks for, in bytes. The kernel may
// give less. Datagrams that it drops are sent again.
const receiveBuffer = 4 << 20

func listen(addr netip.Addr) (*net.UDPConn, error) {
	conn, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(addr, kvcs.UDPPort)))
	if err != nil {
		return nil, err
	}
	_ = conn.SetReadBuffer(receiveBuffer) // a smaller buffer works, too: see receiveBuffer
	return conn, nil
}

// run starts the threads of a loop. The caller has set Machine and the fields before wg.
func (l *loop) run() {
	l.due = make(chan kvcs.Rekey, maxRekeys)
	l.wg.Go(l.receive)
	if l.rekey != nil {
		l.wg.Go(l.rekeys)
	}
}

// receive handles datagrams and timers until the socket is closed.
func (l *loop) receive() {
	b := make([]byte, kvcs.MaxDatagram+1)
	l.step(func(clock.Time) {})
	for {
		n, from, err := l.conn.ReadFromUDPAddrPort(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case errors.Is(err, os.ErrDeadlineExceeded):
			l.step(func(clock.Time) {})
		case err != nil: // the kernel reports that an earlier datagram was not delivered
		default:
			from = netip.AddrPortFrom(from.Addr().Unmap(), from.Port())
			l.step(func(now clock.Time) { l.Receive(now, from, b[:n], &l.box) })
		}
	}
}

// rekeys executes REKEYs until the channel is closed.
func (l *loop) rekeys() {
	for k := range l.due {
		s := l.rekey(&k)
		l.step(func(now clock.Time) { l.rekeyed(now, k.Tag, s, &l.box) })
	}
}

// step calls f, handles the machine's timers, sends what the machine has put into the outbox, and
// sets when receive must call step again.
func (l *loop) step(f func(now clock.Time)) {
	l.awake()
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return
	}
	now := l.now()
	f(now)
	if l.Deadline() <= now {
		l.Tick(now, &l.box)
	}
	for i := range l.box.Packets {
		p := &l.box.Packets[i]
		_, _ = l.conn.WriteToUDPAddrPort(p.Data, p.To) // a lost datagram is sent again
	}
	l.behind = append(l.behind, l.box.Rekeys...)
	for len(l.behind) > 0 && len(l.due) < cap(l.due) {
		l.due <- l.behind[0]
		l.behind = l.behind[1:]
	}
	l.box.Packets, l.box.Rekeys = l.box.Packets[:0], l.box.Rekeys[:0]
	at := time.Time{}
	if next := l.Deadline(); next != clock.Never {
		at = time.Now().Add(next.Sub(now))
	}
	_ = l.conn.SetReadDeadline(at) // it fails only after close
}

// with calls f while no thread of the loop uses the machine. Unlike step, it does not wait while
// the host's programs hang.
func (l *loop) with(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
}

// close ends the threads of the loop and waits for them. While the programs of the host hang, a
// thread cannot end, so close must not be called then. A thread that waits for a REKEY ends after
// the REKEY, which must have ended, or must end soon.
func (l *loop) close() error {
	l.mu.Lock()
	l.closed = true
	close(l.due)
	l.mu.Unlock()
	err := l.conn.Close()
	l.wg.Wait()
	return err
}
