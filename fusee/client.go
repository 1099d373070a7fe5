package fusee

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Client is one client thread of a store, with a connection to each memory server. See the package
// comment. It consists of layers. Each layer embeds the one below it and calls nothing above it.
// From the bottom: memory (operations on the servers), space (objects and blocks), finder (the
// index), changer (changes of slots), grower (splits of subtables), and Client itself (the
// operations of kv.Store).
type Client struct {
	grower
	out   []byte // scratch: the bytes of an object
	ended bool   // Close was called
	// rival is what this client knows of another client's INSERT of the key that it is inserting
	// itself.
	rival rival
	// nextSettle is the earliest time at which the client tries again to settle operations with an
	// unknown outcome.
	nextSettle clock.Time
}

var _ kv.Timed = (*Client)(nil)

// Open makes a client: it connects to all memory servers and takes a client number.
func Open(cfg Config, deadline clock.Time) (*Client, error) {
	c := &Client{}
	if err := c.start(cfg, deadline); err != nil {
		return nil, err
	}
	return c, nil
}

// start connects the client. After an error the client must not be used.
func (c *Client) start(cfg Config, deadline clock.Time) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	c.cfg = cfg
	c.clear()
	c.pulsate = c.beat
	c.cache = cache{places: make([]remembered, max(0, cfg.Cache)), threshold: cfg.Threshold}
	if err := c.open(cfg, deadline); err != nil {
		return err
	}
	if err := c.introduce(deadline); err != nil {
		return errors.Join(err, c.close())
	}
	return nil
}

// register takes a client number by a FETCH_ADD. If the FETCH_ADD fails, the server may have
// executed it. Then its number is not used, and the client takes the next one.
func (c *Client) register(deadline clock.Time) error {
	for {
		word := c.add(c.root(), layout.ClientWord, 1)
		err := c.once(deadline)
		if err == nil {
			last, err := c.fab.Word(word)
			if c.id = uint32(last) + 1; err != nil || last >= 1<<32-1 {
				return errors.Join(err, kv.ErrFull)
			}
			break
		}
		c.drop()
		if err := c.prepareRetry(err, deadline); err != nil {
			return err
		}
		if err := c.reach(c.root(), deadline); err != nil {
			return err
		}
	}
	return c.breakAll() // connect again: the connections belong to the owner with the new number
}

// begin starts an operation. If the client was fenced, it takes a new number; if the members have
// changed, it uses the new view. It also tries to settle earlier operations with an unknown
// outcome, at most once in a lease, and after each change of the members.
func (c *Client) begin(deadline clock.Time) error {
	c.cost, c.strangers, c.friend = kv.Cost{}, c.strangers[:0], 0
	if c.ended {
		return kv.ErrClosed
	}
	if c.rt.Now() >= deadline {
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	if err := c.fab.Poll(); err != nil {
		return err
	}
	if c.fenced {
		if err := c.rejoin(deadline); err != nil {
			return unchanged(err)
		}
	}
	if c.newer != c.view {
		if err := c.follow(deadline); err != nil {
			return unchanged(err)
		}
		c.nextSettle = 0
	}
	if len(c.heirs)+len(c.unsure)+len(c.limbo) > 0 && c.rt.Now() >= c.nextSettle {
		c.nextSettle = c.rt.Now().Add(c.cfg.Lease)
		if err := errors.Join(c.settleHeirs(deadline, deadline), c.settleUnsure(deadline), c.settleLimbo(deadline)); err != nil && !errors.Is(err, kv.ErrTimeout) {
			return err
		}
	}
	return nil
}

// rejoin is called after another client has taken this one for dead. The client takes a new number.
// It has lost all blocks that it owned.
func (c *Client) rejoin(deadline clock.Time) error {
	was := c.super
	c.id, c.heirs = 0, nil
	c.clear()
	if err := c.breakAll(); err != nil {
		return err
	}
	c.fenced = false
	err := c.introduce(deadline)
	// If a member is only absent, the store is not lost: a master removes that member.
	if !errors.Is(err, errAbsent) && (errors.Is(err, layout.ErrSuperblock) || errors.Is(err, errServers) || errors.Is(err, errFormatted)) {
		err = fmt.Errorf("%w: %w", kv.ErrLost, err)
	}
	if err != nil {
		c.fenced, c.super = true, was
	}
	return err
}

// Super returns the superblock, which describes the store.
func (c *Client) Super() layout.Superblock { return c.super }

func (c *Client) Last() kv.Cost { return c.cost }

// MaxValue returns the length in bytes of the longest value that the store can store: its object
// must fit into a block.
func (c *Client) MaxValue() int { return c.largest()*layout.Unit - layout.Overhead }

// Close sends the frees that the client has collected, leaves its blocks to other clients, and ends
// the connections. Some blocks keep the client's number until another client recovers this client
// (Client.Recover): blocks with an object whose operation has an unknown outcome and, if the memory
// servers do not answer, all blocks.
func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	// First the client completes the moves of keys that it has begun for a split. Any other client
	// can continue the split after that.
	if !c.fenced {
		_ = c.complete(false, c.rt.Now().Add(leaveTimeout))
	}
	end := c.rt.Now().Add(farewellTimeout)
	for c.flush(); len(c.flight) > 0 && c.fab.Wait(end, c.flight...) == nil; {
		c.flush()
	}
	if len(c.frees)+len(c.flight) > 0 {
		c.lose()
	}
	defer c.requests.join()
	if !c.fenced && (c.owed || c.requests.unknown() || len(c.blocks)+len(c.heirs)+len(c.limbo) > 0) {
		end = c.rt.Now().Add(leaveTimeout)
		settle := func(end clock.Time) error { return c.settleHeirs(end, end) }
		for _, step := range []func(clock.Time) error{settle, c.settleUnsure, c.confess, c.leave} {
			if c.following(end, func() error { return step(end) }) != nil && c.fenced {
				break
			}
		}
	}
	return c.close()
}
