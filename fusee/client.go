package fusee

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Client is one client thread: a connection to each memory server. See the package comment. It is
// made of parts, each of which embeds the one below and calls nothing above it: memory (operations
// on the servers), space (objects and blocks), finder (the index), changer (changes of slots), and
// the operations of kv.Store themselves.
type Client struct {
	changer
	out   []byte
	ended bool
}

var _ kv.Store = (*Client)(nil)

// Open makes a client: it connects to all memory servers and takes a number.
func Open(cfg Config, deadline clock.Time) (_ *Client, err error) {
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	c := &Client{}
	cfg = cfg.withDefaults()
	c.classes, c.blocks = make(map[int]*class), make(map[blockID]*block)
	c.cache = cache{places: make([]remembered, max(0, cfg.Cache)), threshold: cfg.Threshold}
	if err := c.open(cfg, deadline); err != nil {
		return nil, err
	}
	if err := c.introduce(deadline); err != nil {
		return nil, errors.Join(err, c.close())
	}
	return c, nil
}

// errServers: the store was formatted on another list of servers.
var errServers = errors.New("the store was formatted on another list of memory servers")

// introduce reads the superblocks, takes the client's number, and connects again as its owner.
func (c *Client) introduce(deadline clock.Time) error {
	for i := range c.links {
		s, err := c.superblock(i, deadline)
		if err != nil {
			return fmt.Errorf("memory server %d: %w", i, err)
		}
		if i == 0 {
			c.super = s
		}
		want := c.super
		want.Server = i
		if s != want || s.Shape.Servers != len(c.links) || s.Shape.Len() > uint64(c.links[i].mem.Len) {
			return fmt.Errorf("memory server %d: %w", i, errServers)
		}
	}
	if c.super.Shape.Format != layout.Hardened {
		return fmt.Errorf("a store of format %v: this client knows %v ones", c.super.Shape.Format, layout.Hardened)
	}
	if err := c.register(deadline); err != nil {
		return err
	}
	return c.loadDirectory(deadline)
}

// superblock reads the superblock of a server.
func (c *Client) superblock(i int, deadline clock.Time) (s layout.Superblock, err error) {
	for {
		if err = c.fab.Open(i, deadline); err == nil {
			break
		}
		if err := c.again(err, deadline); err != nil {
			return s, err
		}
	}
	c.read(i, 0, atLog, layout.SuperblockLen)
	if err := c.do(deadline); err != nil {
		return s, err
	}
	if c.scratch, err = c.bytes(c.scratch, atLog, layout.SuperblockLen); err != nil {
		return s, err
	}
	return s, s.Parse(c.scratch)
}

// register takes the number of the client. A number whose FETCH_ADD has failed is left out.
func (c *Client) register(deadline clock.Time) error {
	for {
		word := c.add(0, layout.ClientWord, 1)
		err := c.once(deadline)
		if err == nil {
			last, err := c.word(word)
			if c.id = uint32(last) + 1; err != nil || last >= 1<<32-1 {
				return errors.Join(err, kv.ErrFull)
			}
			break
		}
		c.drop()
		if err := c.again(err, deadline); err != nil {
			return err
		}
		if err := c.fab.Open(0, deadline); err != nil {
			if err := c.again(err, deadline); err != nil {
				return err
			}
		}
	}
	for i := range c.links { // connect again, as the owner with this number
		if err := c.fab.Break(i); err != nil {
			return err
		}
	}
	return nil
}

// begin starts an operation.
func (c *Client) begin(deadline clock.Time) error {
	c.cost = kv.Cost{}
	if c.ended {
		return kv.ErrClosed
	}
	if c.rt.Now() >= deadline {
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	return c.fab.Poll()
}

// Super describes the store.
func (c *Client) Super() layout.Superblock { return c.super }

// Last returns the cost of the last operation.
func (c *Client) Last() kv.Cost { return c.cost }

// MaxValue is the longest value that the store takes, in bytes: its object must fit into a block.
func (c *Client) MaxValue() int { return c.largest()*layout.Unit - layout.Overhead }

// Leaked counts objects that no client uses again, because the outcome of an operation of this client
// that would have freed them is unknown.
func (c *Client) Leaked() uint64 { return c.leaked }

// Close sends the frees that were collected, and ends the connections. The client's blocks remain
// its own: only a master could give them to another client.
func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	end := c.rt.Now().Add(farewellTimeout)
	for c.flush(); len(c.flight) > 0 && c.fab.Wait(end, c.flight...) == nil; {
		c.flush()
	}
	return c.close()
}
