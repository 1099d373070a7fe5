package pdpm

import (
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// CentralService is the name under which a coordinator listens.
const CentralService = "pdpm-central"

// Bounds and times of a coordinator.
const (
	maxConns = 4096
	// acceptors is how many threads accept connections: a client that has given up blocks only one.
	acceptors     = 16
	acceptTimeout = time.Second
	// watchPause is the period in which a coordinator looks whether another one has taken the table
	// over, and watchPatience how long it waits for the memory server.
	watchPause    = 50 * time.Millisecond
	watchPatience = time.Second
)

// errDeposed: another coordinator has taken the table over.
var errDeposed = errors.New("another coordinator has taken the table over")

// CoordinatorConfig describes a coordinator of pDPM-Central.
type CoordinatorConfig struct {
	passive.Config
	// Manager replaces that of Config: it also listens.
	Manager rdmacm.Manager
	// Pace, if not nil, is called by a thread for each request. A simulator lets the time pass that a
	// processor would need for it.
	Pace func()
}

// Coordinator executes the operations of all clients of a table: it has the index of the keys, and
// is the only one that reads and writes the memory. One thread calls Serve, any thread Close.
type Coordinator struct {
	cfg      CoordinatorConfig
	rt       verbs.Runtime
	number   uint32        // of this coordinator: the owner of its connections
	own      *passive.Conn // of takeOver, then of watch
	index    *index
	listener rdmacm.Listener
	pd       verbs.PD
	idle     verbs.Gate // opened by the last thread that ends

	mu       sync.Mutex // guards the fields below
	handlers map[*handler]bool
	threads  int   // that accept connections or serve one
	over     error // why the coordinator is to end; nil: it is not
}

// NewCoordinator takes the table over from a former coordinator, whose requests to the memory
// servers are refused from then on, makes the index, and listens. It returns an error that is
// errAbsent if there is no table. The caller must then call Serve, which frees all resources.
func NewCoordinator(cfg CoordinatorConfig, deadline clock.Time) (_ *Coordinator, err error) {
	cfg.Config.Manager = cfg.Manager
	c := &Coordinator{cfg: cfg, rt: cfg.Context.Runtime(), handlers: make(map[*handler]bool)}
	c.idle = c.rt.NewGate()
	if c.listener, err = cfg.Manager.Listen(CentralService); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.free())
		}
	}()
	if c.pd, err = cfg.Context.AllocPD(); err != nil {
		return nil, err
	}
	if err := c.takeOver(deadline); err != nil {
		return nil, err
	}
	return c, nil
}

// takeOver deposes a former coordinator and makes the index.
func (c *Coordinator) takeOver(deadline clock.Time) (err error) {
	var shape Shape
	c.own, err = form.Join(c.cfg.Config, func(conn *passive.Conn, server int, first []byte) error {
		if c.number != 0 && serving(first) != c.number {
			return errDeposed
		}
		return shape.learn(central, conn, server, first)
	}, deadline)
	if err != nil {
		return err
	}
	number := c.own.Owner()
	for i := range c.own.Servers() {
		if err := depose(c.own, i, number, deadline); err != nil {
			return err
		}
	}
	c.number, c.index = number, newIndex(c.rt, shape)
	for i := range c.own.Servers() {
		if err := c.index.scan(c.own, i, deadline); err != nil {
			return err
		}
	}
	return nil
}

// free frees what NewCoordinator made.
func (c *Coordinator) free() error {
	errs := []error{c.listener.Close()}
	if c.own != nil {
		errs = append(errs, c.own.Close())
	}
	if c.pd != nil {
		errs = append(errs, c.pd.Dealloc())
	}
	return errors.Join(errs...)
}

// watch ends the coordinator when another one has taken the table over, also if no client asks.
func (c *Coordinator) watch() {
	defer c.left()
	for c.ended() == nil {
		var b [8]byte
		if err := c.own.Read(0, atServing, b[:], c.rt.Now().Add(watchPatience)); isDeposed(err) {
			_ = c.end(errDeposed)
		}
		c.rt.Sleep(watchPause)
	}
}

// FormatCentral makes an empty table of pDPM-Central, as Format does for pDPM-Direct.
func FormatCentral(cfg passive.Config, s Shape, deadline clock.Time) (Shape, error) {
	return s.format(cfg, central, deadline)
}

// probe finds a table of pDPM-Central; the error is errAbsent if there is none.
func probe(cfg passive.Config, deadline clock.Time) error {
	var shape Shape
	conn, err := form.Join(cfg, func(conn *passive.Conn, server int, first []byte) error {
		return shape.learn(central, conn, server, first)
	}, deadline)
	if err != nil {
		return err
	}
	return conn.Close()
}

// Shape describes the table.
func (c *Coordinator) Shape() Shape { return c.index.shape }

// serving is the number of the coordinator in a superblock.
func serving(first []byte) uint32 { return uint32(binary.LittleEndian.Uint64(first[atServing:])) }

// depose puts the number of a coordinator into a server's superblock, in place of a smaller one,
// whose connections to the server end before.
func depose(conn *passive.Conn, server int, number uint32, deadline clock.Time) error {
	var b [8]byte
	if err := conn.Read(server, atServing, b[:], deadline); err != nil {
		return err
	}
	for was := binary.LittleEndian.Uint64(b[:]); ; {
		if was > uint64(number) {
			return errDeposed
		}
		var found uint64
		var err error
		if was == 0 {
			found, _, err = conn.Swap(server, atServing, was, uint64(number), deadline)
		} else {
			found, _, err = conn.TakeOver(server, atServing, was, uint64(number), uint32(was), deadline)
		}
		if err != nil || found == was || found == uint64(number) {
			return err
		}
		was = found
	}
}

// scan enters the keys of a server. Of an entry's copies, the whole one with the greater version
// counts; the other one is an older value, or was being written.
func (x *index) scan(conn *passive.Conn, server int, deadline clock.Time) error {
	s := &x.shape
	many := uint64(bufferLen / s.entryLen())
	keys, entries := make([]byte, many*keyLen), make([]byte, many*uint64(s.entryLen()))
	for first := uint64(0); first < uint64(s.Entries); first += many {
		n := min(many, uint64(s.Entries)-first)
		keys, entries := keys[:n*keyLen], entries[:n*uint64(s.entryLen())]
		if err := conn.Read(server, s.keyAt(first), keys, deadline); err != nil {
			return err
		}
		read := false
		for i := range n {
			key := binary.LittleEndian.Uint64(keys[i*keyLen:]) - 1
			if key+1 == 0 {
				continue
			}
			if !read {
				if err := conn.Read(server, s.entryAt(first), entries, deadline); err != nil {
					return err
				}
				read = true
			}
			p := &place{entry: entry{server, s.entryAt(first + i)}, claimed: true}
			p.restore(s, key, entries[i*uint64(s.entryLen()):])
			for ; x.end[server] < first+i; x.end[server]++ {
				x.holes[server] = append(x.holes[server], x.end[server])
			}
			x.end[server] = first + i + 1
			x.keys[key] = p
		}
	}
	return nil
}

// restore learns from an entry which of its copies has the value.
func (p *place) restore(s *Shape, key uint64, b []byte) {
	for which := range 2 {
		c := b[lockLen+which*s.copyLen():][:s.copyLen()]
		version := uint64(tagOf(c))
		if _, whole := valueOf(c, key); !whole {
			continue
		}
		if version > p.version {
			p.now, p.version, p.alive = which, version, alive(c)
		}
	}
	p.used = p.version + 1 // a copy that is torn may have that version
}

// Serve answers clients until Close, which makes it return nil, or until another coordinator takes
// the table over.
func (c *Coordinator) Serve() error {
	c.mu.Lock()
	c.threads += acceptors + 1
	c.mu.Unlock()
	c.rt.Go("watch", c.watch)
	for range acceptors {
		c.rt.Go("accept", c.accept)
	}
	if err := c.idle.Wait(clock.Never); err != nil {
		return err
	}
	_ = c.free() // an object that cannot be destroyed is left behind
	if err := c.ended(); !errors.Is(err, verbs.ErrClosed) {
		return err
	}
	return nil
}

// ended returns why the coordinator is to end; nil: it is not.
func (c *Coordinator) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Close ends Serve.
func (c *Coordinator) Close() error { return c.end(verbs.ErrClosed) }

// end has all threads end.
func (c *Coordinator) end(why error) error {
	c.mu.Lock()
	if c.over == nil {
		c.over = why
	}
	for h := range c.handlers {
		_ = h.qp.ToError() // fails if the queue pair is in ERROR already
	}
	c.mu.Unlock()
	return c.listener.Close()
}

// accept makes connections until the listener is closed.
func (c *Coordinator) accept() {
	defer c.left()
	for {
		req, err := c.listener.Accept(clock.Never)
		if errors.Is(err, verbs.ErrTimeout) {
			continue
		}
		if err != nil {
			_ = c.end(verbs.ErrClosed)
			return
		}
		if h, err := c.connect(req); err == nil {
			c.rt.Go("serve", func() {
				defer c.left()
				h.run()
			})
		}
	}
}

// left counts a thread that ends.
func (c *Coordinator) left() {
	c.mu.Lock()
	c.threads--
	last := c.threads == 0
	c.mu.Unlock()
	if last {
		c.idle.Open()
	}
}

// connect answers a request for a connection; an error concerns only this client.
func (c *Coordinator) connect(req rdmacm.Request) (*handler, error) {
	h, err := newHandler(c)
	if err != nil {
		return nil, errors.Join(err, req.Reject(err.Error()))
	}
	c.mu.Lock()
	full := c.over != nil || len(c.handlers) == maxConns
	if !full {
		c.handlers[h] = true
		c.threads++
	}
	c.mu.Unlock()
	if full {
		return nil, errors.Join(h.close(), req.Reject(fmt.Sprintf("%d clients are connected, or the coordinator ends", maxConns)))
	}
	if err := req.Accept(h.qp, c.cfg.Params, nil, c.rt.Now().Add(acceptTimeout)); err != nil {
		err = errors.Join(err, c.drop(h))
		c.left()
		return nil, err
	}
	return h, nil
}

// drop frees what belongs to a connection.
func (c *Coordinator) drop(h *handler) error {
	c.mu.Lock()
	delete(c.handlers, h)
	c.mu.Unlock()
	return h.close()
}

// memory opens connections to the memory servers under the number of the coordinator.
func (c *Coordinator) memory() (*passive.Conn, error) {
	conn, err := passive.Open(c.cfg.Config, max(superLen, c.index.shape.copyLen()))
	if err != nil {
		return nil, err
	}
	shape := c.index.shape
	conn.Expect(superLen, func(server int, first []byte) error {
		if err := shape.learn(central, conn, server, first); err != nil {
			return fmt.Errorf("%w: memory server %d: %w", kv.ErrLost, server, err)
		}
		if serving(first) != c.number {
			return fmt.Errorf("%w: %w", kv.ErrLost, errDeposed)
		}
		return nil
	})
	return conn, conn.Become(c.number)
}

// isDeposed reports whether an error of a memory server says that another coordinator has taken the
// table over.
func isDeposed(err error) bool {
	return errors.Is(err, errDeposed) || errors.Is(err, memservice.ErrFenced)
}
