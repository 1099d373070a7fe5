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
// package comment). It consists of layers. Each layer embeds the one below it and calls nothing
// above it. From the bottom: memory (operations on pages and words), locker (locks, fences, WRITEs
// with unknown outcome), walker (search), changer (changes and splits), and Client itself (the
// operations of kv.Store).
type Client struct {
	changer
	scans scanBuffers
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
	c := new(Client)
	c.node, c.cfg, c.rt, c.links = n, cfg, kv.NewTimeline(cfg.Context.Runtime()), make([]link, len(n.cfg.Servers))
	c.rand, c.gate, c.locks = c.rt.Rand(), c.rt.NewGate(), n.locks
	if n.cfg.Unqueued {
		c.locks = lock.New(0)
	}
	c.lay(layout.MaxPage)
	c.fab, err = remotemem.New(remotemem.Config{Context: cfg.Context, Buffer: c.at.len})
	if err != nil {
		return nil, err
	}
	defer kv.CloseAfter(&err, c.fab)
	for i, addr := range n.cfg.Servers {
		if c.links[i].peer, err = c.fab.AddPeer(addr, 0, c.dial(i, addr)); err != nil {
			return nil, err
		}
	}
	if err := c.introduce(deadline); err != nil {
		return nil, err
	}
	page := c.super.Shape.Page
	c.lay(page)
	c.pageBuf, c.sibBuf = make([]byte, page), make([]byte, page)
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
	c.cost, c.heal, c.astray, c.dead, c.restarts = Cost{}, separator{}, pointer{}, 0, 0
	if c.ended {
		return kv.ErrClosed
	}
	if c.rt.Now() >= deadline {
		return kv.ErrTimeout
	}
	return c.fab.Poll()
}

// Super returns the superblock, which describes the tree.
func (c *Client) Super() layout.Superblock { return c.super }

func (c *Client) Timeline() *kv.Timeline { return c.rt }

func (c *Client) Last() kv.Cost { return c.cost.Cost }

// LastCost returns the cost of the last operation in detail.
func (c *Client) LastCost() Cost { return c.cost }

// MaxValue returns the length in bytes of the longest value that the tree can store.
func (c *Client) MaxValue() int { return c.super.Shape.Value }

// Close tries to release the locks whose state is unknown, and returns unused pages. Then it ends
// the connections.
func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	c.settle(c.rt.Now().Add(closeTimeout))
	c.leave(c.rt.Now().Add(closeTimeout))
	for i := range c.links {
		c.farewell(i)
	}
	return c.fab.Close()
}
