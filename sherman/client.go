package sherman

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/rdmalab/rdmalab/clover/kv"
	"github.com/rdmalab/rdmalab/sherman/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fabric"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Client is one client thread of a node: a queue pair to each memory server. See the package comment.
type Client struct {
	node  *Node
	cfg   Config
	rt    verbs.Runtime
	rand  *rand.Rand
	fab   *fabric.Fabric
	super layout.Superblock
	links []link
	gate  verbs.Gate // opened when the client is the first of its node at a lock
	space space
	at    areas

	// page and sib are pages being changed, pages those of a scan.
	page, sib       layout.Page
	pageBuf, sibBuf []byte
	pages           []layout.Page
	pageBufs        [][]byte
	order           []uint16
	ranges          []layout.Range
	leaves          []layout.Addr
	ops             [maxChain]fabric.Op
	list            []*fabric.Op
	scanOps         [maxParallel]fabric.Op

	cost  Cost
	ended bool
	// wrote says that the operation has posted WRITEs of a page that others know: what became of them may be open.
	wrote bool
	// heal is a separator that the last descent missed.
	heal separator
}

var _ kv.Scanner = (*Client)(nil)

// separator is what a parent page knows of a child.
type separator struct {
	level int // of the page that it belongs in; 0: none
	key   uint64
	child layout.Addr
}

const (
	// maxChain bounds the WRITEs of one doorbell.
	maxChain = 64
	// maxParallel is how many leaves a scan reads at a time.
	maxParallel = 32
	// pause is how long a client waits before it tries again what failed.
	pause = 200 * time.Microsecond
	// closePatience bounds the good-bye.
	closePatience = time.Second
)

// areas of the registered buffer.
type areas struct{ super, words, out, sib, in, len int }

// Words of the buffer.
const (
	wordAtomic = iota // what an atomic has found
	wordZero          // what unlocks
	wordLock
	wordRoot
	words
)

func (c *Client) lay(page int) {
	c.at = areas{words: layout.SuperblockLen}
	c.at.out = c.at.words + 8*words
	c.at.sib = c.at.out + page
	c.at.in = c.at.sib + page
	c.at.len = c.at.in + maxParallel*page
}

// Open makes a client: it reads the superblock of the first server, and connects to others when it needs them.
func (n *Node) Open(cfg Config, deadline clock.Time) (_ *Client, err error) {
	c := &Client{node: n, cfg: cfg, rt: cfg.Context.Runtime(), links: make([]link, len(n.cfg.Servers))}
	c.rand, c.gate = c.rt.Rand(), c.rt.NewGate()
	c.lay(layout.MaxPage)
	c.fab, err = fabric.New(fabric.Config{Context: cfg.Context, Buffer: c.at.len})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.fab.Close())
		}
	}()
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
	c.pages, c.pageBufs = make([]layout.Page, maxParallel), make([][]byte, maxParallel)
	all := make([]byte, maxParallel*page)
	for i := range c.pageBufs {
		c.pageBufs[i] = all[i*page : (i+1)*page]
	}
	c.space.turn = c.rand.IntN(len(c.links))
	return c, nil
}

// introduce learns what the tree is like.
func (c *Client) introduce(deadline clock.Time) error {
	for {
		err := c.reach(0, deadline)
		if err == nil {
			return nil
		}
		if errors.Is(err, layout.ErrSuperblock) || errors.Is(err, errServers) || errors.Is(err, errOther) {
			return err
		}
		if err := c.again(err, deadline); err != nil {
			return err
		}
	}
}

// errServers says that the tree was made on other servers.
var errServers = errors.New("the tree is on another list of memory servers")

// again decides about an attempt that failed: nil to try again.
func (c *Client) again(err error, deadline clock.Time) error {
	switch {
	case errors.Is(err, kv.ErrLost), errors.Is(err, kv.ErrFull), errors.Is(err, ErrBroken), errors.Is(err, verbs.ErrClosed):
		return err
	case c.rt.Now() >= deadline:
		return timeout(err)
	}
	c.rt.Sleep(pause)
	return nil
}

func timeout(err error) error {
	if err == nil || errors.Is(err, kv.ErrTimeout) {
		return errors.Join(kv.ErrTimeout, err)
	}
	return fmt.Errorf("%w: %w", kv.ErrTimeout, err)
}

// ErrBroken says that a page is not what it should be: the tree is damaged, or was formatted anew.
var ErrBroken = errors.New("the tree is damaged or not the one that this client knows")

// begin starts an operation.
func (c *Client) begin(deadline clock.Time) error {
	c.cost, c.heal = Cost{}, separator{}
	if c.ended {
		return kv.ErrClosed
	}
	if c.rt.Now() >= deadline {
		return kv.ErrTimeout
	}
	return c.fab.Poll()
}

// Super describes the tree.
func (c *Client) Super() layout.Superblock { return c.super }

// Last is what the last operation cost.
func (c *Client) Last() kv.Cost { return c.cost.Cost }

// LastCost is what the last operation cost, in detail.
func (c *Client) LastCost() Cost { return c.cost }

// MaxValue is the longest value that the tree takes, in bytes.
func (c *Client) MaxValue() int { return c.super.Shape.Value }

// Close settles what is in doubt, as far as it can, and ends the connections.
func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	c.settle(c.rt.Now().Add(closePatience))
	c.node.bequeath(c.space)
	for i := range c.links {
		c.farewell(i)
	}
	return c.fab.Close()
}
