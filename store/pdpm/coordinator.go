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
	// acceptors is the number of threads that accept connections. A client that does not complete
	// its connection blocks only one of them.
	acceptors     = 16
	acceptTimeout = time.Second
	// A coordinator looks once per watchPause whether another one has taken the table over. It
	// waits up to watchPatience for the memory server's answer.
	watchPause    = 50 * time.Millisecond
	watchPatience = time.Second
)

// errDeposed ends a coordinator: another one has taken the table over, or the table is lost.
var errDeposed = errors.New("another coordinator has taken the table over")

// CoordinatorConfig describes a coordinator of pDPM-Central.
type CoordinatorConfig struct {
	passive.Config
	// Manager is used in place of Config.Manager, because the coordinator also listens.
	Manager rdmacm.Manager
	// Pace, if not nil, is called for each request, by the thread that executes it. In a simulator
	// it lets the time pass that a processor would need for the request.
	Pace func()
}

// Coordinator executes the operations of all clients of a table. It has the index of the keys, and
// it alone reads and writes the memory. One thread calls Serve. Any thread may call Close.
type Coordinator struct {
	cfg CoordinatorConfig
	rt  verbs.Runtime
	// number is the owner number under which this coordinator connects to memory servers.
	number   uint32
	own      *passive.Conn // connections that the method takeOver uses, and later the method watch
	super    passive.Super
	index    *index
	listener rdmacm.Listener
	pd       verbs.PD
	idle     verbs.Gate // opened by the last thread that ends

	mu       sync.Mutex // guards the fields below
	handlers map[*handler]bool
	threads  int   // the number of threads that accept connections or serve one
	over     error // why the coordinator must end; nil while it works
}

// NewCoordinator listens, takes the table over from an earlier coordinator and makes the index.
// After the takeover the memory servers refuse requests of the earlier coordinator. The error is
// passive.ErrAbsent if there is no table. After success the caller must call Serve, which frees all
// resources at its end.
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

// takeOver deposes an earlier coordinator and then makes the index.
func (c *Coordinator) takeOver(deadline clock.Time) (err error) {
	if c.own, c.super, err = central.Join(c.cfg.Config, deadline); err != nil {
		return err
	}
	c.number = c.own.Owner()
	for i := range c.own.Servers() {
		if err := depose(c.own, i, c.number, deadline); err != nil {
			return err
		}
	}
	central.Expect(c.own, c.super, c.serving)
	c.index = newIndex(c.rt, shapeOf(c.super.Numbers), c.own.Servers())
	for i := range c.own.Servers() {
		if err := c.index.scan(c.own, i, deadline); err != nil {
			return err
		}
	}
	return nil
}

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

// watch ends the coordinator when another one has taken the table over, or when the table is lost.
// It notices that even if no client sends a request.
func (c *Coordinator) watch() {
	defer c.left()
	for c.ended() == nil {
		var b [8]byte
		if err := c.own.Read(0, atServing, b[:], c.rt.Now().Add(watchPatience)); isDeposed(err) || errors.Is(err, kv.ErrLost) {
			_ = c.end(errDeposed)
		}
		c.rt.Sleep(watchPause)
	}
}

// FormatCentral makes an empty table of pDPM-Central, as Format makes one of pDPM-Direct.
func FormatCentral(cfg passive.Config, s Shape, deadline clock.Time) (Shape, error) {
	return s.format(cfg, central, deadline)
}

// probe returns nil if there is a table of pDPM-Central. The error is passive.ErrAbsent if there is
// none.
func probe(cfg passive.Config, deadline clock.Time) error {
	conn, _, err := central.Join(cfg, deadline)
	if err != nil {
		return err
	}
	return conn.Close()
}

func (c *Coordinator) Shape() Shape { return c.index.shape }

// serving returns errDeposed if number, the coordinator's number in a superblock, is not that of
// this coordinator. Then another coordinator has taken the table over.
func (c *Coordinator) serving(number uint64) error {
	if number != uint64(c.number) {
		return errDeposed
	}
	return nil
}

// depose puts the number of a coordinator into a server's superblock. If the superblock has a
// smaller number, of an earlier coordinator, the server first ends the connections of that
// coordinator. If it has a greater number, another coordinator has deposed this one.
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

// scan reads the keys of a server and enters them into the index. An entry has two copies. A copy
// is whole if its checksum matches. Of the whole copies, the one with the greater version counts.
// The other copy is older, or its write was never finished.
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

// restore finds out from the bytes b of an entry which of its two copies has the value.
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
	p.used = p.version + 1 // a torn copy may have version p.version + 1
}

// Serve answers clients. It returns nil after Close, and errDeposed when another coordinator has
// taken the table over, or when the table is lost.
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

// ended returns why the coordinator must end, or nil while it works.
func (c *Coordinator) ended() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.over
}

// Close ends Serve.
func (c *Coordinator) Close() error { return c.end(verbs.ErrClosed) }

// end makes all threads of the coordinator end.
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

// accept accepts connections until the listener is closed, and starts a thread for each.
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

// left is called by each thread when it ends. The last one opens idle.
func (c *Coordinator) left() {
	c.mu.Lock()
	c.threads--
	last := c.threads == 0
	c.mu.Unlock()
	if last {
		c.idle.Open()
	}
}

// connect answers a request for a connection. An error concerns only this client.
func (c *Coordinator) connect(req rdmacm.Request) (*handler, error) {
	h, err := c.newHandler()
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

func (c *Coordinator) drop(h *handler) error {
	c.mu.Lock()
	delete(c.handlers, h)
	c.mu.Unlock()
	return h.close()
}

// memory opens connections to the memory servers. Their owner is the number of the coordinator.
func (c *Coordinator) memory() (*passive.Conn, error) {
	conn, err := passive.Open(c.cfg.Config, max(passive.SuperLen, c.index.shape.copyLen()))
	if err != nil {
		return nil, err
	}
	central.Expect(conn, c.super, c.serving)
	return conn, conn.Become(c.number)
}

// isDeposed reports whether an error of a memory server says that another coordinator has taken the
// table over.
func isDeposed(err error) bool {
	return errors.Is(err, errDeposed) || errors.Is(err, memservice.ErrFenced)
}
