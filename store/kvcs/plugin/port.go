package plugin

import (
	"errors"
	"net"
	"net/netip"
	"sync"
	"sync/atomic"
	"time"

	onermahost "github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/kvcs"
)

// Bounds of the clients of a host.
const (
	maxClients = 1024
	// area is the length in bytes of a client's local memory. Its longest READ fits there.
	area = 4096
	// clientSlots is how many READs of a host's clients may be in flight at a time.
	clientSlots = 256
	// maxInbox bounds the messages of the coordinator that wait for a client. Few wait: except for
	// duplicates they are answers to the client's requests. A GET first takes all that wait; a change
	// takes them while it waits for its own answer.
	maxInbox = 16
	// maxRemotes is how many replicas a port remembers.
	maxRemotes = 2 * kvcs.MaxReplicas
)

// clients is the process on the 1RMA NIC that all clients of a host use together. They share what
// they know of the replicas (health).
type clients struct {
	nic    *onermahost.NIC
	proc   *onermahost.Process
	awake  func()
	local  *onermahost.Region
	buf    []byte
	health kvcs.Health
	wg     sync.WaitGroup
	total  *totals

	mu     sync.Mutex // guards the fields below
	free   []int      // offsets of areas that no client has
	ports  map[*port]struct{}
	closed bool
}

// totals counts what closed clients of a host have done, and how many clients were opened.
type totals struct{ opened, redirected, changed, pending atomic.Uint64 }

// newClients opens the process of a host's clients on its NIC.
func newClients(n *onermahost.NIC, awake func(), total *totals) (*clients, error) {
	p, err := n.Open(onermahost.ProcessConfig{Slots: clientSlots, Gate: awake})
	if err != nil {
		return nil, err
	}
	c := &clients{nic: n, proc: p, awake: awake, buf: make([]byte, maxClients*area), total: total, ports: make(map[*port]struct{})}
	if c.local, err = p.Register(c.buf, verbs.LocalWrite); err != nil {
		p.Close()
		return nil, err
	}
	for i := range maxClients {
		c.free = append(c.free, (maxClients-1-i)*area)
	}
	return c, nil
}

// close ends the process and all clients. Operations in progress end with kv.ErrClosed.
func (c *clients) close() error {
	c.mu.Lock()
	c.closed = true
	var errs []error
	for p := range c.ports {
		p.over.Store(true)
		errs = append(errs, p.conn.Close())
	}
	c.mu.Unlock()
	c.proc.Close()
	c.wg.Wait()
	return errors.Join(errs...)
}

func (c *clients) open(coordinator netip.Addr, rtt time.Duration, number uint64, deadline clock.Time) (_ *client, err error) {
	to := net.UDPAddrFromAddrPort(netip.AddrPortFrom(coordinator, kvcs.UDPPort))
	conn, err := net.DialUDP("udp4", &net.UDPAddr{IP: c.proc.Addr().AsSlice()}, to)
	if err != nil {
		return nil, err
	}
	p := &port{clients: c, conn: conn, inbox: make(chan []byte, maxInbox), remotes: make(map[*kvcs.Remote]*onermahost.Remote)}
	if err := c.admit(p); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	k, err := kvcs.Open(kvcs.ClientConfig{Port: p, PID: c.proc.PID(), RTT: rtt, Number: number, Health: &c.health}, deadline)
	if err != nil {
		return nil, errors.Join(err, p.close())
	}
	c.total.opened.Add(1)
	return &client{k, p}, nil
}

// admit gives a port an area of the local memory, and starts the thread that receives its
// datagrams.
func (c *clients) admit(p *port) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return kv.ErrClosed
	}
	last := len(c.free) - 1
	if last < 0 {
		return errors.New("too many clients on a host: close one")
	}
	p.place, c.free = c.free[last], c.free[:last]
	c.ports[p] = struct{}{}
	c.wg.Go(p.receive)
	return nil
}

type client struct {
	*kvcs.Client
	port *port
}

func (c *client) Close() error {
	s, t := c.Stats(), c.port.clients.total
	t.redirected.Add(s.Redirected)
	t.changed.Add(s.Changed)
	t.pending.Add(s.Pending)
	return errors.Join(c.Client.Close(), c.port.close())
}

// port is the I/O of a client. It implements kvcs.Port.
type port struct {
	clients *clients
	conn    *net.UDPConn
	place   int // offset of its area in clients.buf
	inbox   chan []byte
	over    atomic.Bool // true if the port, or the process, was closed
	ended   bool        // true if close was called
	call    onermahost.Call
	remotes map[*kvcs.Remote]*onermahost.Remote
}

var _ kvcs.Port = (*port)(nil)

// receive hands messages of the coordinator to the client, until the socket is closed.
func (p *port) receive() {
	defer close(p.inbox)
	b := make([]byte, kvcs.MaxDatagram+1)
	for {
		n, err := p.conn.Read(b)
		switch {
		case errors.Is(err, net.ErrClosed):
			return
		case err != nil: // the kernel reports that an earlier datagram was not delivered
			continue
		}
		select {
		case p.inbox <- append([]byte(nil), b[:n]...):
		default: // the inbox is full: the client asks again
		}
	}
}

func (p *port) Now() clock.Time { return p.clients.nic.Now() }

func (p *port) Closed() bool { return p.over.Load() }

func (p *port) Send(b []byte) {
	p.clients.awake()
	_, _ = p.conn.Write(b) // a lost datagram is sent again
}

func (p *port) Receive(until clock.Time) ([]byte, bool) {
	select {
	case b, ok := <-p.inbox:
		return b, ok
	default:
	}
	wait := until.Sub(p.Now())
	if wait <= 0 {
		return nil, false
	}
	timer := time.NewTimer(wait)
	defer timer.Stop()
	select {
	case b, ok := <-p.inbox:
		p.clients.awake()
		return b, ok
	case <-timer.C:
		p.clients.awake()
		return nil, false
	}
}

func (p *port) Read(r *kvcs.Remote, offset uint64, b []byte, until clock.Time) nic.Status {
	c := p.clients
	at := uint64(p.place)
	err := c.proc.Start(&p.call, &onermahost.Transfer{
		Op: onerma.Read, Remote: p.remote(r), Offset: offset, Length: len(b), Local: c.local, LocalOffset: at, Once: true,
	}, until)
	if err == nil {
		_, err = p.call.Wait()
	}
	s, ok := statusOf(err)
	switch {
	case s == nic.OK:
		copy(b, c.buf[at:])
	case !ok: // the NIC is down, or the replica is on this host: a NIC does not READ its own host's memory
		p.pause(until)
	}
	return s
}

// pause waits until a time, at most maxPause. It is called after a READ that could not succeed, so
// that the client does not repeat this READ immediately.
func (p *port) pause(until clock.Time) {
	if wait := until.Sub(p.Now()); wait > 0 && !p.Closed() {
		time.Sleep(min(wait, maxPause))
	}
}

const maxPause = 10 * time.Millisecond

// remote returns the replica r as the host's NIC reaches it. It remembers the result for later
// READs.
func (p *port) remote(r *kvcs.Remote) *onermahost.Remote {
	m := p.remotes[r]
	if m == nil {
		if len(p.remotes) >= maxRemotes { // most of them belong to earlier views
			clear(p.remotes)
		}
		m = onermahost.Keyed(r.Addr, r.Region, r.Length, onerma.Read, r.Key)
		p.remotes[r] = m
	}
	return m
}

// close ends the port. It does nothing if it was called before.
func (p *port) close() error {
	c := p.clients
	c.mu.Lock()
	defer c.mu.Unlock()
	if p.ended {
		return nil
	}
	p.ended = true
	delete(c.ports, p)
	c.free = append(c.free, p.place)
	if p.over.Swap(true) {
		return nil // the process has closed the socket
	}
	return p.conn.Close()
}
