package sherman

import (
	"errors"
	"time"

	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/sherman/lock"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Client is one client thread of a compute node, with a queue pair to each memory server (see the
// package comment). It consists of parts: a part knows those before it, and calls none after it.
// Client itself has the operations of kv.Store.
type Client struct {
	mem    memory  // operations on pages and words of the servers
	locker locker  // locks, fences, WRITEs with unknown outcome
	tree   walker  // finds the page of a key
	pages  changer // changes, splits and merges pages
	scans  scanBuffers
}

// newClient returns a client whose parts know each other.
func newClient() *Client {
	c := new(Client)
	c.locker.mem = &c.mem
	c.tree.mem, c.tree.locker = &c.mem, &c.locker
	c.pages.mem, c.pages.locker, c.pages.tree = &c.mem, &c.locker, &c.tree
	c.pages.moves.pages = &c.pages
	return c
}

var (
	_ kv.Scanner = (*Client)(nil)
	_ kv.Timed   = (*Client)(nil)
)

// separator is the entry for a child in its parent page: the child's lowest key and its address.
type separator struct {
	level int // level of the parent page; 0 means that there is no separator
	key   uint64
	child layout.Addr
}

const (
	// maxChain is the greatest number of WRITEs that the client posts with one doorbell.
	maxChain = 64
	// maxParallel is how many leaves a scan reads at a time.
	maxParallel = 32
	// pause is how long a client waits before it repeats an attempt that failed.
	pause = 200 * time.Microsecond
	// closeTimeout is how long Close may take to release locks whose state is unknown, and again to
	// return unused pages.
	closeTimeout = time.Second
)

// areas has the offsets of the areas in the client's registered buffer, and the length of the
// buffer (len). Superblocks are read into `super`, pages into `in`, and words into `words`. WRITEs
// take changed ranges of pages from `out`, and pages that no page names yet from `sib`.
type areas struct{ super, words, out, sib, in, len int }

// Indices of the 8-byte words in the client's registered buffer.
const (
	wordAtomic = iota // the value that an atomic found in remote memory
	wordZero          // zero, which the WRITE that releases a lock writes
	wordLock          // a lock word that was read
	wordRoot          // the root word that was read
	words
)

// lay divides the buffer into its areas, for a tree with pages of `page` bytes.
func (c *memory) lay(page int) {
	c.at = areas{words: layout.SuperblockLen}
	c.at.out = c.at.words + 8*words
	c.at.sib = c.at.out + page
	c.at.in = c.at.sib + page
	c.at.len = c.at.in + maxParallel*page
}

// Open makes a client. It connects to the first memory server and reads the superblock there. The
// client connects to the other servers when it first needs them.
func (n *Node) Open(cfg Config, deadline clock.Time) (_ *Client, err error) {
	c := newClient()
	c.mem.node, c.mem.cfg, c.mem.rt, c.mem.links = n, cfg, kv.NewTimeline(cfg.Context.Runtime()), make([]link, len(n.cfg.Servers))
	c.mem.rand, c.locker.gate, c.locker.locks = c.mem.rt.Rand(), c.mem.rt.NewGate(), n.locks
	if n.cfg.Unqueued {
		c.locker.locks = lock.New(0)
	}
	c.mem.lay(layout.MaxPage)
	c.mem.fab, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: c.mem.at.len})
	if err != nil {
		return nil, err
	}
	defer kv.CloseAfter(&err, c.mem.fab)
	for i, addr := range n.cfg.Servers {
		if c.mem.links[i].peer, err = c.mem.fab.AddPeer(addr, 0, c.mem.dial(i, addr)); err != nil {
			return nil, err
		}
	}
	if err := c.mem.introduce(deadline); err != nil {
		return nil, err
	}
	page := c.mem.super.Shape.Page
	c.mem.lay(page)
	c.mem.pageBuf, c.pages.sibBuf = make([]byte, page), make([]byte, page)
	c.scans.pages, c.scans.pageBufs = make([]layout.Page, maxParallel), make([][]byte, maxParallel)
	all := make([]byte, maxParallel*page)
	for i := range c.scans.pageBufs {
		c.scans.pageBufs[i] = all[i*page : (i+1)*page]
	}
	n.joined()
	return c, nil
}

// introduce connects to the first server and reads its superblock, which describes the tree.
func (c *memory) introduce(deadline clock.Time) error {
	for {
		err := c.reach(0, deadline)
		if err == nil {
			return nil
		}
		if errors.Is(err, layout.ErrSuperblock) || errors.Is(err, errServers) || errors.Is(err, errOther) {
			return err
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// errServers means that the client's list of memory servers is not the list for which the tree was
// formatted.
var errServers = errors.New("the tree was formatted on another list of memory servers")

// prepareRetry is called after an attempt has failed with err. If the caller should try again,
// prepareRetry pauses and returns nil. Otherwise it returns the error with which the operation
// ends.
func (c *memory) prepareRetry(err error, deadline clock.Time) error {
	switch {
	case errors.Is(err, kv.ErrLost), errors.Is(err, kv.ErrFull), errors.Is(err, ErrBroken), errors.Is(err, verbs.ErrClosed):
		return err
	case c.rt.Now() >= deadline:
		return kv.TimedOut(err)
	}
	c.rt.Sleep(pause)
	return nil
}

// retried connects to server i if necessary and calls f, until both succeed or prepareRetry returns
// an error. f must be safe to repeat.
func (c *memory) retried(i int, deadline clock.Time, f func() error) error {
	for {
		err := c.reach(i, deadline)
		if err == nil {
			err = f()
		}
		if err == nil {
			return nil
		}
		if err := c.prepareRetry(err, deadline); err != nil {
			return err
		}
	}
}

// ErrBroken means that a page is not the page that the client expects. The tree is damaged, or was
// formatted again.
var ErrBroken = errors.New("the tree is damaged or not the one that this client knows")

// begin starts an operation: it clears what the client remembers of the previous one.
func (c *walker) begin(deadline clock.Time) error {
	c.mem.cost, c.heal, c.astray, c.dead, c.restarts = Cost{}, separator{}, pointer{}, 0, 0
	if c.mem.ended {
		return kv.ErrClosed
	}
	if c.mem.rt.Now() >= deadline {
		return kv.ErrTimeout
	}
	return c.mem.fab.Poll()
}

// Root reads the address of the root page.
func (c *Client) Root(deadline clock.Time) (layout.Addr, error) { return c.tree.readRoot(deadline) }

// Super returns the superblock, which describes the tree.
func (c *Client) Super() layout.Superblock { return c.mem.super }

func (c *Client) Timeline() *kv.Timeline { return c.mem.rt }

func (c *Client) Last() kv.Cost { return c.mem.cost.Cost }

// LastCost returns the cost of the last operation in detail.
func (c *Client) LastCost() Cost { return c.mem.cost }

// MaxValue returns the length in bytes of the longest value that the tree can store.
func (c *Client) MaxValue() int { return c.mem.super.Shape.Value }

// Close tries to release the locks whose state is unknown, and returns unused pages. Then it ends
// the connections.
func (c *Client) Close() error {
	if c.mem.ended {
		return nil
	}
	c.mem.ended = true
	c.locker.settle(c.mem.rt.Now().Add(closeTimeout))
	c.pages.leave(c.mem.rt.Now().Add(closeTimeout))
	for i := range c.mem.links {
		c.mem.farewell(i)
	}
	return c.mem.fab.Close()
}
