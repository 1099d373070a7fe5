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
	// Context is the verbs context of the client. The caller closes it.
	Context verbs.Context
	// Manager connects queue pairs, with Params.
	Manager rdmacm.Dialer
	Params  rdmacm.Params
	// Servers are the memory servers, at least one. All clients of a store must use the same order.
	Servers []netip.Addr
}

const (
	// pause is the time that a client waits before it repeats a failed attempt.
	pause = 200 * time.Microsecond
	// farewell is the longest time that Close waits for a server to confirm the end of a
	// connection. A server that Close does not reach notices the end later.
	farewell = 100 * time.Millisecond
)

// Conn has a connection to each memory server. See the package comment.
type Conn struct {
	cfg   Config
	rt    *kv.Timeline
	fab   *remotemem.Fabric
	mems  []memservice.Memory // by server; known when the Conn has connected to the server
	owner uint32              // see Become
	first []byte              // the first bytes of a server's memory, for check
	check func(server int, first []byte) error
	op    remotemem.Op
	then  remotemem.Op // the READ of SwapRead
	held  held
	rtts  int
}

// held has the arguments of Hold.
type held struct {
	server   int
	at, word uint64
}

// ErrPassed says that the word that was given to Hold had another value when the Conn connected to
// the server again: another client has changed it.
var ErrPassed = errors.New("another client has the word")

// Open makes a Conn for operations of up to buffer bytes. The Conn connects to a server when it
// makes the first operation there. The caller closes the Conn.
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

// dial connects to a server. It also asks the server to end the Conn's previous connection.
func (c *Conn) dial(qp verbs.QP, server int, until clock.Time) error {
	claim := memservice.Claim{Owner: c.owner, Replaces: c.mems[server].Conn}
	m, err := memservice.DialOwned(c.cfg.Manager, qp, c.cfg.Servers[server], c.cfg.Params, claim, until)
	if err == nil {
		c.mems[server] = m
	}
	return err
}

// Expect sets a check for all later connections. On each new connection the Conn reads the first n
// bytes of the server's memory and calls check with them. If check returns kv.ErrLost, the
// operation ends at once; after any other error the Conn connects again, until the deadline of the
// operation.
func (c *Conn) Expect(n int, check func(server int, first []byte) error) {
	c.first, c.check = make([]byte, n), check
}

// Become ends all connections and sets the owner number of later connections. No other client may
// have the same number.
func (c *Conn) Become(owner uint32) error {
	var errs []error
	for i := range c.mems {
		errs = append(errs, c.fab.Break(i))
	}
	c.owner = owner
	return errors.Join(errs...)
}

// Owner returns the number that Become has set.
func (c *Conn) Owner() uint32 { return c.owner }

// Hold names a word, at address `at`, that must have the value `word` when the Conn connects to the
// server again. Otherwise the operation ends with ErrPassed. Hold with value 0 ends this check. A
// client calls Hold when it gets a lock. Another client may take the lock over. Then the first
// client must not repeat a request that it decided on while it had the lock. Fencing alone does not
// prevent that: a memory service that restarts forgets whom it has fenced. The lock word in memory
// remains.
func (c *Conn) Hold(server int, at, word uint64) { c.held = held{server, at, word} }

// reach connects to a server if there is no connection. If Expect was called, reach then checks the
// server's memory: the first bytes as Expect demands, and the word that Hold names.
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

// fill reads bytes of a server's memory into b. It uses the present connection, and does not try
// again after a failure.
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

// do carries out the operation that `prepare` puts into c.op, and then those in `more`. If one of
// them fails, do connects again and repeats all of them. `sent` is how often they were sent. The
// error is kv.ErrTimeout, verbs.ErrClosed, ErrPassed or the error of prepare. It is kv.ErrLost if
// this owner was fenced, or if the check of Expect says that the memory was lost.
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

func (c *Conn) Write(server int, at uint64, b []byte, deadline clock.Time) error {
	_, err := c.do(server, deadline, func() error {
		c.fab.Write(&c.op, c.target(server, at), 0, len(b))
		return c.fab.MR().WriteAt(b, 0)
	})
	return err
}

// Swap changes a word from `old` to `young` by CAS and returns what the last CAS has found. `sent`
// is the number of times that the CAS was sent. If it was sent once, the change was made exactly if
// `found` is `old`. After an error with `sent` 0, the change was not made and never will be.
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

// SwapRead does the work of Swap, and reads len(b) bytes at `from` in the same round trip. The
// server executes the READ after the CAS. So if the CAS was made, b has the contents of the memory
// after it.
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

// TakeOver changes, like Swap, a word from `old` to `young` by CAS; `old` says that `owner` has a
// lock. Before each CAS, TakeOver fences this owner at the server. A server that restarts forgets
// the fence. But then the connection on which the CAS is sent fails, too, because it was made
// before the fence.
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

// Count adds 1 to a word by FETCH_ADD and returns the value before.
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

// Retire fences all owners that have ever connected to a server. It returns the greatest of their
// numbers: numbers above it are free. See memservice.Retire.
func (c *Conn) Retire(server int, deadline clock.Time) (last uint32, err error) {
	for {
		if last, err = memservice.Retire(c.cfg.Context, c.cfg.Manager, c.cfg.Servers[server], 0, deadline); err == nil || c.rt.Now() >= deadline {
			return last, err
		}
		c.rt.Sleep(pause)
	}
}

func (c *Conn) Servers() int { return len(c.mems) }

// Len returns how much memory a server shares, in bytes. It is known after the first operation
// there.
func (c *Conn) Len(server int) int { return c.mems[server].Len }

// Runtime returns the runtime of the client's context. It also records in which phases operations
// spend their time.
func (c *Conn) Runtime() *kv.Timeline { return c.rt }

// RTTs returns the number of round trips so far. An operation that was sent twice counts twice.
func (c *Conn) RTTs() int { return c.rtts }

// Close ends the connections and tells the servers to free their ends of them.
func (c *Conn) Close() error {
	err := c.fab.Close()
	for i := range c.mems {
		if conn := c.mems[i].Conn; conn != 0 {
			_ = memservice.End(c.cfg.Context, c.cfg.Manager, c.cfg.Servers[i], conn, c.rt.Now().Add(farewell))
		}
	}
	return err
}
