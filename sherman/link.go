package sherman

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	store "github.com/rdmalab/rdmalab/clover/layout"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// link is this client's way to one memory server.
type link struct {
	peer int
	mem  perf.Memory
	// asked is the owner of the connection that is being made, owner that of the one there is.
	asked, owner uint32
	// known says that the memory of this connection was found to be the tree's.
	known bool
	// len is how much of it belongs to the tree, in bytes.
	len uint64
	// lost is the life of a server that has lost its memory; 0: none.
	lost uint64
	mtu  int
}

// farewellPatience bounds the wait for a server to agree that a connection is over; it notices by itself in the end.
const farewellPatience = 100 * time.Millisecond

// dial connects as the owner that reach has chosen, and ends the connection before: what was under way on it is not executed any more.
func (c *Client) dial(i int, addr netip.Addr) fabric.Connect {
	return func(qp verbs.QP, until clock.Time) error {
		l := &c.links[i]
		l.known, l.owner = false, 0
		m, err := perf.DialOwned(c.cfg.Manager, qp, addr, c.cfg.Params, perf.MemoryHello{Owner: l.asked, Replaces: l.mem.Conn}, until)
		if errors.Is(err, perf.ErrFenced) {
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

// reach makes sure of a connection to a server, in the node's name, and that its memory is the tree's.
func (c *Client) reach(i int, deadline clock.Time) error {
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
			if err := c.fab.Open(l.peer, deadline); errors.Is(err, perf.ErrFenced) {
				continue // as somebody else
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

// know checks that the memory behind a new connection is the tree's.
func (c *Client) know(i int, deadline clock.Time) error {
	l := &c.links[i]
	if l.known {
		return nil
	}
	if l.lost != 0 && l.lost == l.mem.Boot {
		return c.errLost(i)
	}
	o := &c.ops[0]
	c.fab.Read(o, fabric.Target{Peer: l.peer, Addr: l.mem.Addr, RKey: l.mem.RKey}, c.at.super, layout.SuperblockLen)
	if err := c.post(deadline, o); err != nil {
		return err
	}
	var b [layout.SuperblockLen]byte
	if err := c.fab.MR().ReadAt(b[:], c.at.super); err != nil {
		return err
	}
	var s layout.Superblock
	err := s.Parse(b[:])
	if err == nil && !s.HostLocks && l.mem.Locks.Len < 8*s.Locks {
		err = fmt.Errorf("memory server %d has %d bytes for locks, the tree needs %d: %w", i, l.mem.Locks.Len, 8*s.Locks, ErrBroken)
	}
	if err == nil {
		err = c.compare(i, s)
	}
	if errors.Is(err, layout.ErrSuperblock) && c.super.Generation != 0 || errors.Is(err, kv.ErrLost) {
		l.lost = l.mem.Boot
		return c.errLost(i)
	}
	if errors.Is(err, layout.ErrSuperblock) && new(store.Superblock).Parse(b[:]) == nil {
		return fmt.Errorf("memory server %d: %w", i, errOther)
	}
	if err != nil {
		return err
	}
	l.known = true
	c.node.booted(i, l.mem.Boot)
	return nil
}

// errOther says that the memory is in use for something else, and a tree must not be made there unasked.
var errOther = errors.New("the memory holds a store clover, which a tree would destroy: `rdmalab sherman start --fresh` makes one all the same")

func (c *Client) errLost(i int) error { return fmt.Errorf("%w: memory server %d", kv.ErrLost, i) }

// compare holds the superblock of server i against the node's, which the first client sets.
func (c *Client) compare(i int, s layout.Superblock) error {
	n := c.node
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.super == nil {
		if i != 0 || s.Server != 0 || s.Servers != len(n.cfg.Servers) {
			return fmt.Errorf("server %d of %d says that it is server %d of %d: %w", i, len(n.cfg.Servers), s.Server, s.Servers, errServers)
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

// booted notes the life of a server. In a new one nothing of the memory of its NIC is left.
func (n *Node) booted(i int, boot uint64) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.servers[i].boot = boot
}

// register gets the node a name at a server.
func (c *Client) register(i int, deadline clock.Time) error {
	if c.node.owner(i) != 0 {
		return nil // another client has done it
	}
	o := &c.ops[0]
	l := &c.links[i]
	c.fab.FetchAdd(o, fabric.Target{Peer: l.peer, Addr: l.mem.Addr + layout.OwnerWord, RKey: l.mem.RKey}, 1, c.wordAt(wordAtomic))
	if err := c.post(deadline, o); err != nil {
		return err
	}
	last, err := c.load(wordAtomic)
	if err == nil {
		c.node.claim(i, uint32(last)+1)
	}
	return err
}

// farewell tells a server that a connection is over.
func (c *Client) farewell(i int) {
	l := &c.links[i]
	if l.mem.Conn == 0 {
		return
	}
	_ = c.fab.Break(l.peer) // it goes with the fabric
	_ = perf.EndConn(c.cfg.Context, c.cfg.Manager, c.node.cfg.Servers[i], l.mem.Conn, c.rt.Now().Add(farewellPatience))
}

// inside reports whether an address can be that of a page. Servers may have regions of different lengths.
func (c *Client) inside(a layout.Addr) bool {
	s := c.super
	if i := a.Server(); i < len(c.links) && c.links[i].len != 0 {
		s.Len = c.links[i].len
	}
	return s.Inside(a)
}
