package passive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Config describes a Conn.
type Config struct {
	// Context is the client's; the caller closes it.
	Context verbs.Context
	// Manager connects queue pairs, with Params.
	Manager rdmacm.Dialer
	Params  rdmacm.Params
	// Servers are the memory servers, at least one. All clients of a store must have the same order.
	Servers []netip.Addr
}

const (
	// pause is how long a client waits before it repeats an attempt that failed.
	pause = 200 * time.Microsecond
	// farewell bounds the wait for a server to confirm the end of a connection; without it the server
	// notices later.
	farewell = 100 * time.Millisecond
)

// Conn has a connection to each memory server. See the package comment.
type Conn struct {
	cfg   Config
	rt    *kv.Timeline
	fab   *remotemem.Fabric
	mems  []memservice.Memory
	owner uint32
	first []byte // what check compares
	check func(server int, first []byte) error
	op    remotemem.Op
	then  remotemem.Op // the READ of SwapRead
	held  held
	rtts  int
}

// held is what Hold has said.
type held struct {
	server   int
	at, word uint64
}

// ErrPassed says that the word of Hold has another value on a new connection.
var ErrPassed = errors.New("another client has the word")

// Open makes a Conn for operations of up to buffer bytes. It connects to a server with the first
// operation there. The caller closes it.
func Open(cfg Config, buffer int) (*Conn, error) {
	if len(cfg.Servers) == 0 {
		return nil, errors.New("a store without memory servers: want at least one")
	}
	c := &Conn{cfg: cfg, rt: kv.NewTimeline(cfg.Context.Runtime()), mems: make([]memservice.Memory, len(cfg.Servers))}
	var err error
	if c.fab, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: buffer}); err != nil {
		return nil, err
	}
	for i, addr := range cfg.Servers {
		if _, err := c.fab.AddPeer(addr, 0, func(qp verbs.QP, until clock.Time) error { return c.dial(qp, i, until) }); err != nil {
			return nil, errors.Join(err, c.fab.Close())
		}
	}
	return c, nil
}

// dial connects to a server, and has it end the connection before.
func (c *Conn) dial(qp verbs.QP, server int, until clock.Time) error {
	claim := memservice.Claim{Owner: c.owner, Replaces: c.mems[server].Conn}
	m, err := memservice.DialOwned(c.cfg.Manager, qp, c.cfg.Servers[server], c.cfg.Params, claim, until)
	if err == nil {
		c.mems[server] = m
	}
	return err
}

// Expect has check compare the first n bytes of a server's memory after each new connection from
// now on. An error of check that is kv.ErrLost ends an operation at once.
func (c *Conn) Expect(n int, check func(server int, first []byte) error) {
	c.first, c.check = make([]byte, n), check
}

// Become ends the connections. The next ones have an owner, which must be a number that no other
// client has.
func (c *Conn) Become(owner uint32) error {
	var errs []error
	for i := range c.mems {
		errs = append(errs, c.fab.Break(i))
	}
	c.owner = owner
	return errors.Join(errs...)
}

// Owner is the number that Become has set.
func (c *Conn) Owner() uint32 { return c.owner }

// Hold has a new connection to a server used only if a word there has this value; otherwise an
// operation ends with ErrPassed, which Hold of 0 ends. A client that has a lock so sends nothing
// again that it decided on before another client took the lock: a memory service that restarts
// forgets that it has fenced the client, but not the word.
func (c *Conn) Hold(server int, at, word uint64) { c.held = held{server, at, word} }

// reach connects to a server if necessary.
func (c *Conn) reach(server int, deadline clock.Time) error {
	if c.fab.Connected(server) {
		return nil
	}
	if err := c.fab.Open(server, deadline); err != nil || c.check == nil {
		return err
	}
	err := c.fill(server, 0, c.first, deadline)
	if err == nil {
		err = c.check(server, c.first)
	}
	if h := &c.held; err == nil && h.word != 0 && h.server == server {
		var b [8]byte
		if err = c.fill(server, h.at, b[:], deadline); err == nil && binary.LittleEndian.Uint64(b[:]) != h.word {
			err = ErrPassed
		}
	}
	if err != nil {
		return errors.Join(err, c.fab.Break(server))
	}
	return nil
}

// fill reads a server's memory on the present connection.
func (c *Conn) fill(server int, at uint64, b []byte, deadline clock.Time) error {
	c.fab.Read(&c.op, c.target(server, at), 0, len(b))
	if err := c.fab.Do(deadline, &c.op); err != nil {
		return err
	}
	return c.fab.MR().ReadAt(b, 0)
}

func (c *Conn) target(server int, at uint64) remotemem.Target {
	m := &c.mems[server]
	return remotemem.Target{Peer: server, Addr: m.Addr + at, RKey: m.RKey}
}

// do carries out the operation that prepare makes, and those in more behind it, and repeats them on a
// new connection while one fails. sent is how often they were sent. The error is kv.ErrTimeout,
// kv.ErrLost if the owner was fenced, or ErrPassed.
func (c *Conn) do(server int, deadline clock.Time, prepare func() error, more ...*remotemem.Op) (sent int, err error) {
	ops := append([]*remotemem.Op{&c.op}, more...)
	for {
		if err = c.reach(server, deadline); err == nil {
			if err := prepare(); err != nil {
				return sent, err
			}
			c.rtts++
			sent++
			from := c.rt.Enter(kv.PhaseTrip)
			err = c.fab.Do(deadline, ops...)
			if c.rt.Leave(from); err == nil {
				return sent, nil
			}
		}
		switch {
		case errors.Is(err, memservice.ErrFenced):
			return sent, errors.Join(kv.ErrLost, err)
		case errors.Is(err, kv.ErrLost), errors.Is(err, verbs.ErrClosed), errors.Is(err, ErrPassed):
			return sent, err
		case c.rt.Now() >= deadline:
			return sent, fmt.Errorf("%w: %w", kv.ErrTimeout, err)
		}
		c.rt.Sleep(pause)
	}
}

// Read fills b from a server's memory.
func (c *Conn) Read(server int, at uint64, b []byte, deadline clock.Time) error {
	_, err := c.do(server, deadline, func() error {
		c.fab.Read(&c.op, c.target(server, at), 0, len(b))
		return nil
	})
	if err != nil {
		return err
	}
	return c.fab.MR().ReadAt(b, 0)
}

// Write writes bytes.
func (c *Conn) Write(server int, at uint64, b []byte, deadline clock.Time) error {
	_, err := c.do(server, deadline, func() error {
		c.fab.Write(&c.op, c.target(server, at), 0, len(b))
		return c.fab.MR().WriteAt(b, 0)
	})
	return err
}

// Swap changes a word from old to young, and returns what the last CAS has found. sent is how often
// it was sent: if that is once, found tells whether it was made; after an error, 0 says that it
// never will be.
func (c *Conn) Swap(server int, at, old, young uint64, deadline clock.Time) (found uint64, sent int, err error) {
	sent, err = c.do(server, deadline, func() error {
		c.fab.CompareSwap(&c.op, c.target(server, at), old, young, 0)
		return nil
	})
	if err == nil {
		found, err = c.fab.Word(0)
	}
	return found, sent, err
}

// SwapRead is Swap, and a READ behind it in the same round trip, which fills b: if the CAS was made,
// with what the memory had from then on.
func (c *Conn) SwapRead(
	server int, at, old, young, from uint64, b []byte, deadline clock.Time,
) (found uint64, sent int, err error) {
	sent, err = c.do(server, deadline, func() error {
		c.fab.CompareSwap(&c.op, c.target(server, at), old, young, 0)
		c.fab.Read(&c.then, c.target(server, from), 8, len(b))
		return nil
	}, &c.then)
	if err == nil {
		found, err = c.fab.Word(0)
	}
	if err == nil {
		err = c.fab.MR().ReadAt(b, 8)
	}
	return found, sent, err
}

// TakeOver is Swap for a word that says that an owner has a lock. That owner is fenced at the server
// before each CAS, on whose connection the server cannot have restarted since and forgotten that.
func (c *Conn) TakeOver(
	server int, at, old, young uint64, owner uint32, deadline clock.Time,
) (found uint64, sent int, err error) {
	sent, err = c.do(server, deadline, func() error {
		for {
			from := c.rt.Enter(kv.PhaseRPC)
			err := memservice.Fence(c.cfg.Context, c.cfg.Manager, c.cfg.Servers[server], owner, deadline)
			if c.rt.Leave(from); err == nil {
				break
			}
			if c.rt.Now() >= deadline {
				return kv.TimedOut(err)
			}
			c.rt.Sleep(pause)
		}
		c.fab.CompareSwap(&c.op, c.target(server, at), old, young, 0)
		return nil
	})
	if err == nil {
		found, err = c.fab.Word(0)
	}
	return found, sent, err
}

// Count adds 1 to a word and returns its former value.
func (c *Conn) Count(server int, at uint64, deadline clock.Time) (uint64, error) {
	_, err := c.do(server, deadline, func() error {
		c.fab.FetchAdd(&c.op, c.target(server, at), 1, 0)
		return nil
	})
	if err != nil {
		return 0, err
	}
	return c.fab.Word(0)
}

// Retire ends the connections of all owners at a server, and returns the greatest number of one:
// numbers above it are free. See memservice.Retire.
func (c *Conn) Retire(server int, deadline clock.Time) (last uint32, err error) {
	for {
		if last, err = memservice.Retire(c.cfg.Context, c.cfg.Manager, c.cfg.Servers[server], 0, deadline); err == nil || c.rt.Now() >= deadline {
			return last, err
		}
		c.rt.Sleep(pause)
	}
}

// Servers is the number of servers.
func (c *Conn) Servers() int { return len(c.mems) }

// Len is how much memory a server shares, in bytes, once an operation was made there.
func (c *Conn) Len(server int) int { return c.mems[server].Len }

// Runtime is the runtime of the client's context, which notes where the time of operations goes.
func (c *Conn) Runtime() *kv.Timeline { return c.rt }

// RTTs counts the operations that were sent.
func (c *Conn) RTTs() int { return c.rtts }

// Close ends the connections, and has the servers free their ends.
func (c *Conn) Close() error {
	err := c.fab.Close()
	for i := range c.mems {
		if conn := c.mems[i].Conn; conn != 0 {
			_ = memservice.End(c.cfg.Context, c.cfg.Manager, c.cfg.Servers[i], conn, c.rt.Now().Add(farewell))
		}
	}
	return err
}
