package sherman

import (
	"errors"
	"fmt"
	"math/rand/v2"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// memory is a client's access to the memory servers: the connections, the registered buffer, and
// operations on pages and words. It knows the layout of a page, but not the structure of the tree.
type memory struct {
	node  *Node
	cfg   Config
	rt    *kv.Timeline
	rand  *rand.Rand
	fab   *remotemem.Fabric
	super layout.Superblock
	links []link
	at    areas
	ops   [maxChain]remotemem.Op
	list  []*remotemem.Op // scratch: the operations of one round trip
	// page is the page that the client has read last for a search or a change; its bytes are in
	// pageBuf.
	page    layout.Page
	pageBuf []byte
	cost    Cost // cost of the current operation
	ended   bool
}

func (c *memory) wordAt(i int) int { return c.at.words + 8*i }

// load returns word i of the buffer.
func (c *memory) load(i int) (uint64, error) { return c.fab.MR().Load64(c.wordAt(i)) }

// target returns the remote memory at address a. The client must be connected to the server of a.
func (c *memory) target(a layout.Addr) remotemem.Target {
	l := &c.links[a.Server()]
	return remotemem.Target{Peer: l.peer, Addr: l.mem.Addr + a.Offset(), RKey: l.mem.RKey}
}

// lockTarget returns the remote memory of the lock word k: in its page, in host memory, or in the
// memory of the server's NIC.
func (c *memory) lockTarget(k lock.Key) remotemem.Target {
	if n := uint64(c.super.Shape.Page); c.super.PageLocks {
		return c.target(layout.At(k.Server, (uint64(k.Index)+1)*n-layout.LockLen))
	}
	if c.super.HostLocks {
		return c.target(layout.At(k.Server, layout.LocksAt+8*uint64(k.Index)))
	}
	l := &c.links[k.Server]
	return remotemem.Target{Peer: l.peer, Addr: l.mem.Locks.Addr + 8*uint64(k.Index), RKey: l.mem.Locks.RKey}
}

func (c *memory) lockOf(a layout.Addr) lock.Key {
	if c.super.PageLocks {
		return lock.Key{Server: a.Server(), Index: int(a.Offset() / uint64(c.super.Shape.Page))}
	}
	return lock.Key{Server: a.Server(), Index: layout.LockOf(a, c.super.Locks)}
}

// charge adds the bytes of an operation's packets to the cost (Cost.Bytes). answer is true if the
// responder sends an ACK for this operation alone.
func (c *memory) charge(o *remotemem.Op, answer bool) {
	n, mtu := 0, 1024
	for i := range c.links {
		if c.links[i].peer == o.Peer {
			mtu = c.links[i].mtu
		}
	}
	for _, s := range o.WR.SGL {
		n += int(s.Length)
	}
	switch o.WR.Op {
	case verbs.OpRead:
		c.cost.Bytes += ipBase + ipRETH + packets(n, mtu) + ipAETH
		if n > mtu {
			c.cost.Bytes += ipAETH // the first and the last packet of the response have an AETH
		}
		return
	case verbs.OpCmpSwap, verbs.OpFetchAdd:
		c.cost.Bytes += ipBase + ipAtomic + ipAck + 8
		return
	default:
		c.cost.Bytes += packets(n, mtu) + ipRETH
	}
	if answer {
		c.cost.Bytes += ipAck
	}
}

// do takes one round trip: it posts operations, each of which requests its own acknowledgement, and
// waits for all of them. The client must be connected to their servers.
func (c *memory) do(deadline clock.Time, ops ...*remotemem.Op) error {
	c.cost.RTTs++
	for _, o := range ops {
		c.charge(o, true)
	}
	defer c.rt.Leave(c.rt.Enter(kv.PhaseTrip))
	return c.post(deadline, ops...)
}

// post starts operations and waits for all of them. It does not connect to a server: reach must
// check the memory behind a new connection before the client uses it.
func (c *memory) post(deadline clock.Time, ops ...*remotemem.Op) error {
	var first error
	for _, o := range ops {
		if err := c.fab.Start(o); err != nil && first == nil {
			first = err
		}
	}
	if err := c.fab.Wait(deadline, ops...); first == nil {
		first = err
	}
	return first
}

// chain takes one round trip: it posts operations with one doorbell and waits for all of them.
func (c *memory) chain(deadline clock.Time, ops []*remotemem.Op) error {
	c.cost.RTTs++
	defer c.rt.Leave(c.rt.Enter(kv.PhaseTrip))
	for i, o := range ops {
		c.charge(o, i == len(ops)-1)
	}
	if err := c.fab.Chain(ops...); err != nil {
		return err
	}
	return c.fab.Wait(deadline, ops...)
}

// readPage reads the page at address a into buf and parses it into p. It repeats the READ until the
// copy is not torn.
func (c *memory) readPage(a layout.Addr, p *layout.Page, buf []byte, deadline clock.Time) error {
	if !c.inside(a) {
		return fmt.Errorf("%w: address %v", ErrBroken, a)
	}
	// In a damaged tree, siblings may form a cycle. The deadline ends a walk there.
	if c.rt.Now() >= deadline {
		return kv.ErrTimeout
	}
	for {
		if err := c.fetch(a.Server(), func() remotemem.Target { return c.target(a) }, buf, deadline); err != nil {
			return err
		}
		whole, err := c.parse(a, p, buf, deadline)
		if whole || err != nil {
			return err
		}
	}
}

// parse parses the copy of the page at address a. whole is true if the copy is not torn. If whole
// is false and there is no error, the caller must read the page again.
func (c *memory) parse(a layout.Addr, p *layout.Page, buf []byte, deadline clock.Time) (whole bool, err error) {
	err = p.Parse(c.super.Shape, buf)
	if errors.Is(err, layout.ErrTorn) {
		c.node.count(func(s *NodeStats) { s.Torn++ })
		if c.rt.Now() >= deadline {
			return false, kv.TimedOut(err)
		}
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("%w: page %v: %w", ErrBroken, a, err)
	}
	if p.Shape.Kind == layout.Hardened && (p.Self != a || p.Generation != c.super.Generation || p.Stage == layout.Unused) {
		cause := ErrBroken
		if p.Self.Place() == a.Place() && p.Generation == c.super.Generation {
			cause = errGone // the page is Unused, or the header is of its next incarnation
		}
		return false, fmt.Errorf("%w: page %v has the header of %v of tree %x, which is %v", cause, a, p.Self, p.Generation, p.Stage)
	}
	return true, nil
}

// readWord reads a word of a server into word i of the buffer, and returns it.
func (c *memory) readWord(t remotemem.Target, i int, deadline clock.Time) (uint64, error) {
	o := &c.ops[0]
	c.fab.Read(o, t, c.wordAt(i), 8)
	if err := c.do(deadline, o); err != nil {
		return 0, err
	}
	return c.load(i)
}

// word reads the word at address a into word i of the buffer, and returns it. It repeats failed
// attempts until the deadline.
func (c *memory) word(a layout.Addr, i int, deadline clock.Time) (w uint64, err error) {
	err = c.retried(a.Server(), deadline, func() (err error) {
		w, err = c.readWord(c.target(a), i, deadline)
		return err
	})
	return w, err
}

// swap executes a compare-and-swap on a word of a server and returns the value that it found there.
func (c *memory) swap(t remotemem.Target, compare, swap uint64, deadline clock.Time) (uint64, error) {
	o := &c.ops[0]
	c.fab.CompareSwap(o, t, compare, swap, c.wordAt(wordAtomic))
	if err := c.do(deadline, o); err != nil {
		return 0, err
	}
	return c.load(wordAtomic)
}
