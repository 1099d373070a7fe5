package socket

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/onerma/host"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Client is a program's connection to the NIC of its host. Its methods may be called by several
// goroutines.
type Client struct {
	conn *net.UnixConn
	pid  nic.PID
	addr netip.Addr
	done chan struct{} // closed when the receiver has returned
	busy chan struct{} // has an element for each request in flight, and so bounds their number

	mu      sync.Mutex            // guards the fields below
	last    uint64                // the number of the last request
	waiting map[uint64]chan reply // for the answers to requests in flight, by number
	failure error                 // why the connection has ended
}

// reply is an answer of the daemon with the file descriptors that came with it.
type reply struct {
	answer
	fds []int
}

// Open connects a program to the NIC of its host. "" means the path in the environment variable
// Env.
func Open(ctx context.Context, path string) (*Client, error) {
	if path == "" {
		if path = os.Getenv(Env); path == "" {
			return nil, fmt.Errorf("1RMA: %s is not set: run the program with `rdmalab exec HOST -- PROGRAM` on a rack with `onerma: {}`", Env)
		}
	}
	var d net.Dialer
	conn, err := d.DialContext(ctx, "unixpacket", path)
	if err != nil {
		return nil, fmt.Errorf("1RMA: %w", err)
	}
	c := &Client{conn: conn.(*net.UnixConn), done: make(chan struct{}), busy: make(chan struct{}, maxInFlight), waiting: make(map[uint64]chan reply)} //nolint:forcetypeassert // of a unix socket
	go c.receive()
	who, err := c.call(ctx, request{Do: doWho})
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.pid, c.addr = who.PID, who.Addr
	return c, nil
}

// PID returns the program's number, from which keys for the program are derived.
func (c *Client) PID() nic.PID { return c.pid }

func (c *Client) Addr() netip.Addr { return c.addr }

// receive passes the daemon's answers to the callers that wait for them, until the connection ends.
func (c *Client) receive() {
	defer close(c.done)
	buf, oob := make([]byte, MaxMessage), make([]byte, unix.CmsgSpace(8*4))
	for {
		n, fds, _, err := ring.Receive(c.conn, buf, oob)
		got := reply{fds: fds}
		if err == nil && n == 0 {
			err = errors.New("the daemon has ended the connection")
		}
		if err == nil {
			err = decode(buf[:n], &got.answer)
		}
		if err == nil && got.ID == 0 {
			// The daemon has refused the connection or a message as a whole.
			err = got.err()
		}
		c.mu.Lock()
		if err != nil {
			c.failure = fmt.Errorf("1RMA: %w: %w", verbs.ErrClosed, err)
			for id, w := range c.waiting {
				delete(c.waiting, id)
				close(w)
			}
			c.mu.Unlock()
			ring.CloseFiles(got.fds...)
			return
		}
		w := c.waiting[got.ID]
		delete(c.waiting, got.ID)
		c.mu.Unlock()
		if w == nil {
			ring.CloseFiles(got.fds...)
			continue
		}
		w <- got // never blocks: the capacity is 1
	}
}

// call sends a request and waits for its answer. When ctx ends, it asks the daemon to cancel the
// request, and still waits for the answer, because the NIC may use the memory until then.
func (c *Client) call(ctx context.Context, req request) (reply, error) {
	if err := ctx.Err(); err != nil {
		return reply{}, err
	}
	select {
	case c.busy <- struct{}{}:
	case <-ctx.Done():
		return reply{}, ctx.Err()
	}
	defer func() { <-c.busy }()
	w := make(chan reply, 1)
	c.mu.Lock()
	if err := c.failure; err != nil {
		c.mu.Unlock()
		return reply{}, err
	}
	c.last++
	req.ID = c.last
	c.waiting[req.ID] = w
	err := send(c.conn, &req, nil)
	if err != nil {
		delete(c.waiting, req.ID)
	}
	c.mu.Unlock()
	if err != nil {
		return reply{}, fmt.Errorf("1RMA: %w", err)
	}
	stop := context.AfterFunc(ctx, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		_ = send(c.conn, &request{Do: doCancel, Of: req.ID}, nil) // an error means that the connection has ended
	})
	defer stop()
	got, ok := <-w
	if !ok {
		c.mu.Lock()
		defer c.mu.Unlock()
		return reply{}, c.failure
	}
	if err := got.err(); err != nil {
		ring.CloseFiles(got.fds...)
		if ctx.Err() != nil {
			err = fmt.Errorf("%w (%w)", err, ctx.Err())
		}
		return got, err
	}
	return got, nil
}

// Close ends the connection, and with it all transfers, memory and loans. Memory that was
// registered stays mapped until Memory.Close.
func (c *Client) Close() error {
	err := c.conn.Close()
	<-c.done
	return err
}

// Memory is memory of the program that its NIC can use.
type Memory struct {
	client *Client
	number uint32
	bytes  []byte
}

// Register makes memory of n bytes, all 0. access has the rights of peers that get a grant
// (verbs.RemoteRead, verbs.RemoteWrite), and verbs.LocalWrite, which READs into it need.
func (c *Client) Register(ctx context.Context, n int, access verbs.Access) (*Memory, error) {
	got, err := c.call(ctx, request{Do: doMemory, Bytes: n, Access: access})
	if err != nil {
		return nil, err
	}
	defer ring.CloseFiles(got.fds...)
	if len(got.fds) != 1 {
		return nil, errors.New("1RMA: the daemon has sent no memory")
	}
	b, err := ring.Map(got.fds[0], n)
	if err == nil {
		err = ring.Populate(b) // the pages belong to this program's cgroup
	}
	if err != nil {
		_, ferr := c.call(ctx, request{Do: doForget, Region: got.Region})
		return nil, errors.Join(err, ring.Unmap(b), ferr)
	}
	return &Memory{client: c, number: got.Region, bytes: b}, nil
}

// Bytes returns the memory. It must not be used after Close.
func (m *Memory) Bytes() []byte { return m.bytes }

// Grant returns what the program with number pid, on the NIC with address `to`, needs to use the
// memory. The caller sends it to that program.
func (m *Memory) Grant(ctx context.Context, to netip.Addr, pid nic.PID) (host.Grant, error) {
	got, err := m.client.call(ctx, request{Do: doGrant, Region: m.number, Addr: to, PID: pid})
	if err != nil {
		return host.Grant{}, err
	}
	if got.answer.Grant == nil {
		return host.Grant{}, errors.New("1RMA: the daemon has sent no grant")
	}
	return *got.answer.Grant, nil
}

// Close ends the memory. Close fails while transfers use the memory. After the end of the
// connection Close only unmaps the memory.
func (m *Memory) Close() error {
	_, err := m.client.call(context.Background(), request{Do: doForget, Region: m.number})
	if err != nil && !errors.Is(err, verbs.ErrClosed) {
		return err
	}
	b := m.bytes
	m.bytes = nil
	return ring.Unmap(b)
}

// Remote is memory of a peer that the program may use.
type Remote struct {
	client *Client
	number uint32
	length uint64
}

// Len returns the length of the memory in bytes.
func (r *Remote) Len() uint64 { return r.length }

// Borrow asks the daemon of the host with address `from` for n bytes of memory, which are 0. The
// loan ends with Close, with the connection, or when one of the two hosts crashes.
func (c *Client) Borrow(ctx context.Context, from netip.Addr, n int) (*Remote, error) {
	return c.remote(ctx, request{Do: doBorrow, Addr: from, Bytes: n})
}

// Use returns the memory that a program on the NIC with address `on` has granted by g.
func (c *Client) Use(ctx context.Context, on netip.Addr, g host.Grant) (*Remote, error) {
	return c.remote(ctx, request{Do: doUse, Addr: on, Grant: &g})
}

func (c *Client) remote(ctx context.Context, req request) (*Remote, error) {
	got, err := c.call(ctx, req)
	if err != nil {
		return nil, err
	}
	return &Remote{client: c, number: got.answer.Remote, length: got.Length}, nil
}

// Close ends the use of the memory. If it was borrowed, Close ends the loan.
func (r *Remote) Close() error {
	_, err := r.client.call(context.Background(), request{Do: doGiveBack, Remote: r.number})
	return err
}

// Transfer is a READ or a WRITE of any size; see host.Transfer.
type Transfer struct {
	Class       uint8
	Remote      *Remote
	Offset      uint64
	Length      int
	Local       *Memory
	LocalOffset uint64
	Once        bool
}

// Read copies bytes of a peer's memory to local memory. It returns when all bytes have arrived, or
// soon after the context's deadline or its end. When it has returned, no byte changes any more. If
// the transfer began but did not move all bytes, the error is or wraps a *host.StatusError. If the
// daemon or its NIC has ended, it wraps verbs.ErrClosed.
func (c *Client) Read(ctx context.Context, t Transfer) (host.Result, error) {
	return c.move(ctx, doRead, &t)
}

// Write copies bytes of local memory to a peer's memory, and returns like Read.
func (c *Client) Write(ctx context.Context, t Transfer) (host.Result, error) {
	return c.move(ctx, doWrite, &t)
}

func (c *Client) move(ctx context.Context, do string, t *Transfer) (host.Result, error) {
	if t.Remote == nil || t.Local == nil || t.Remote.client != c || t.Local.client != c {
		return host.Result{}, errors.New("1RMA: pass remote memory and local memory of this connection")
	}
	req := request{
		Do: do, Remote: t.Remote.number, Offset: t.Offset, Length: t.Length, Region: t.Local.number, At: t.LocalOffset, Class: t.Class, Once: t.Once,
	}
	if at, ok := ctx.Deadline(); ok {
		req.Within = max(1, time.Until(at))
	}
	got, err := c.call(ctx, req)
	return got.Result, err
}

// SetPolicy chooses what sets the congestion windows of the program's process, also while transfers go on:
// one of executor.Policies.
func (c *Client) SetPolicy(ctx context.Context, name string) error {
	_, err := c.call(ctx, request{Do: doPolicy, Policy: name})
	return err
}

// Rekey replaces the key of a peer's region; see host.Process.Rekey.
func (c *Client) Rekey(ctx context.Context, r *Remote, k nic.Key) error {
	_, err := c.call(ctx, request{Do: doRekey, Remote: r.number, Key: hex.EncodeToString(k[:])})
	return err
}
