package sherman

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/superblock"
)

// link is the client's connection to one memory server.
type link struct {
	peer int
	mem  memservice.Memory
	// asked is the owner number under which the client is connecting. owner is the owner number of
	// the established connection, or 0.
	asked, owner uint32
	// known is true if the client has checked that the memory behind this connection belongs to the
	// tree.
	known bool
	// len is how many bytes of the memory belong to the tree; 0 before the client has read the
	// superblock.
	len uint64
	// lost is the server's boot number when the client found that the server no longer has the
	// tree; 0 means that the client has not found that.
	lost uint64
	// mtu is the path MTU of the connection, in bytes.
	mtu int
}

// farewellTimeout is how long a client waits for a server to confirm the end of a connection.
// Without a confirmation the server notices the end later.
const farewellTimeout = 100 * time.Millisecond

// dial returns the function that connects to server i. It gives the server the owner number that
// reach has set (link.asked), and makes the server end the client's previous connection, so that
// the server no longer executes requests in flight there.
func (c *memory) dial(i int, addr netip.Addr) remotemem.Connect {
	return func(qp verbs.QP, until clock.Time) error {
		l := &c.links[i]
		l.known, l.owner = false, 0
		m, err := memservice.DialOwned(c.cfg.Manager, qp, addr, c.cfg.Params, memservice.Claim{Owner: l.asked, Replaces: l.mem.Conn}, until)
		if errors.Is(err, memservice.ErrFenced) {
			c.node.fenced(i, l.asked)
		}
		if err != nil {
			return err
		}
		l.mem, l.owner = m, l.asked
		a, err := qp.Query()
		l.mtu = max(int(a.RTR.PathMTU), 256)
		return err
	}
}

// reach makes sure that the client is connected to server i under the node's owner number, and that
// the server's memory belongs to the tree.
func (c *memory) reach(i int, deadline clock.Time) error {
	for {
		l := &c.links[i]
		owner := c.node.owner(i)
		if l.known && owner != 0 && l.owner == owner && c.fab.Connected(l.peer) {
			return nil
		}
		if c.rt.Now() >= deadline {
			return kv.ErrTimeout
		}
		if !c.fab.Connected(l.peer) || l.owner != owner {
			if err := c.fab.Break(l.peer); err != nil {
				return err
			}
			l.asked = owner
			if err := c.fab.Open(l.peer, deadline); errors.Is(err, memservice.ErrFenced) {
				continue // with a new owner number
			} else if err != nil {
				return err
			}
		}
		if err := c.know(i, deadline); err != nil {
			return err
		}
		if l.owner == 0 {
			if err := c.register(i, deadline); err != nil {
				return err
			}
		}
	}
}

// know checks that the memory behind the connection to server i belongs to the tree.
func (c *memory) know(i int, deadline clock.Time) error {
	l := &c.links[i]
	if l.known {
		return nil
	}
	if l.lost != 0 && l.lost == l.mem.Boot {
		return c.errLost(i)
	}
	o := &c.ops[0]
	c.fab.Read(o, remotemem.Target{Peer: l.peer, Addr: l.mem.Addr, RKey: l.mem.RKey}, c.at.super, layout.SuperblockLen)
	if err := c.post(deadline, o); err != nil {
		return err
	}
	var b [layout.SuperblockLen]byte
	if err := c.fab.MR().ReadAt(b[:], c.at.super); err != nil {
		return err
	}
	var s layout.Superblock
	err := s.Parse(b[:])
	if err == nil && !s.HostLocks && !s.PageLocks && l.mem.Locks.Len < 8*s.Locks {
		err = fmt.Errorf("memory server %d has %d bytes for locks, the tree needs %d: %w", i, l.mem.Locks.Len, 8*s.Locks, ErrBroken)
	}
	if err == nil {
		err = c.compare(i, s)
	}
	if errors.Is(err, layout.ErrSuperblock) && c.super.Generation != 0 || errors.Is(err, kv.ErrLost) {
		l.lost = l.mem.Boot
		return c.errLost(i)
	}
	if holds := superblock.Foreign(b[:], superblock.Sherman); holds != "" && errors.Is(err, layout.ErrSuperblock) {
		return fmt.Errorf("the memory of server %d holds %s; %w", i, holds, errOther)
	}
	if err != nil {
		return err
	}
	l.known = true
	return nil
}

// errOther means that the memory holds another store. Only the flag --fresh overwrites it.
var errOther = errors.New("`rdmalab sherman start --fresh` overwrites it")

func (c *memory) errLost(i int) error { return fmt.Errorf("%w: memory server %d", kv.ErrLost, i) }

// compare checks that s, the superblock of server i, fits the superblock that this compute node has
// stored (Node.super). If the node has none yet, compare stores s if s is that of server 0.
func (c *memory) compare(i int, s layout.Superblock) error {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.super == nil {
		if i != 0 || s.Server != 0 || s.Servers != len(n.cfg.Servers) {
			return fmt.Errorf("server %d of %d has the superblock of server %d of %d: %w", i, len(n.cfg.Servers), s.Server, s.Servers, errServers)
		}
		first := s
		n.super = &first
	}
	want := *n.super
	c.super = want
	c.links[i].len = s.Len
	if want.Server = i; s.Generation != want.Generation {
		return kv.ErrLost
	}
	if s.Len, want.Len = 0, 0; s != want {
		return fmt.Errorf("server %d: %w", i, errServers)
	}
	return nil
}

// register gets an owner number for the node from server i.
func (c *memory) register(i int, deadline clock.Time) error {
	if c.node.owner(i) != 0 {
		return nil // another client of the node has got a number meanwhile
	}
	o := &c.ops[0]
	l := &c.links[i]
	c.fab.FetchAdd(o, remotemem.Target{Peer: l.peer, Addr: l.mem.Addr + layout.OwnerWord, RKey: l.mem.RKey}, 1, c.wordAt(wordAtomic))
	if err := c.post(deadline, o); err != nil {
		return err
	}
	last, err := c.load(wordAtomic)
	if err == nil {
		c.node.claim(i, uint32(last)+1)
	}
	return err
}

// farewell ends the connection to server i and asks the server to free its queue pair.
func (c *memory) farewell(i int) {
	l := &c.links[i]
	if l.mem.Conn == 0 {
		return
	}
	_ = c.fab.Break(l.peer) // if it fails, closing the fabric destroys the queue pair
	_ = memservice.End(c.cfg.Context, c.cfg.Manager, c.node.cfg.Servers[i], l.mem.Conn, c.rt.Now().Add(farewellTimeout))
}

// inside reports whether a can be the address of a page. The servers' regions may have different
// lengths.
func (c *memory) inside(a layout.Addr) bool {
	s := c.super
	if i := a.Server(); i < len(c.links) && c.links[i].len != 0 {
		s.Len = c.links[i].len
	}
	return s.Inside(a)
}
