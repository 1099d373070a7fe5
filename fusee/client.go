package fusee

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Client is one client thread of a store, with a connection to each memory server. See the package
// comment. It consists of parts: a part knows those before it, and calls none after it. Client itself
// has the operations of kv.Store.
type Client struct {
	mem    memory  // operations on the servers
	space  space   // objects and blocks
	index  finder  // looks for keys
	slots  changer // changes slots in all replicas
	splits grower  // splits subtables
	out    []byte  // scratch: the bytes of an object
	ended  bool    // Close was called
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
	c := newClient()
	if err := c.start(cfg, deadline); err != nil {
		return nil, err
	}
	return c, nil
}

// newClient returns a client whose parts know each other.
func newClient() *Client {
	c := &Client{}
	c.space.mem, c.space.copies.mem = &c.mem, &c.mem
	c.index.mem, c.index.space = &c.mem, &c.space
	c.slots.mem, c.slots.space, c.slots.index = &c.mem, &c.space, &c.index
	c.splits.mem, c.splits.space, c.splits.index, c.splits.slots = &c.mem, &c.space, &c.index, &c.slots
	return c
}

// start connects the client. After an error the client must not be used.
func (c *Client) start(cfg Config, deadline clock.Time) error {
	if err := cfg.validate(); err != nil {
		return err
	}
	cfg = cfg.withDefaults()
	c.mem.cfg = cfg
	c.space.clear()
	c.mem.pulsate = c.slots.beat
	c.index.cache = cache{places: make([]remembered, max(0, cfg.Cache)), threshold: cfg.Threshold}
	if err := c.mem.open(cfg, deadline); err != nil {
		return err
	}
	if err := c.introduce(deadline); err != nil {
		return errors.Join(err, c.mem.close())
	}
	return nil
}

// register takes a client number by a FETCH_ADD. If the FETCH_ADD fails, the server may have
// executed it. Then its number is not used, and the client takes the next one.
func (c *Client) register(deadline clock.Time) error {
	for {
		word := c.mem.add(c.space.root(), layout.ClientWord, 1)
		err := c.mem.once(deadline)
		if err == nil {
			last, err := c.mem.fab.Word(word)
			if c.mem.id = uint32(last) + 1; err != nil || last >= 1<<32-1 {
				return errors.Join(err, kv.ErrFull)
			}
			break
		}
		c.mem.drop()
		if err := c.mem.prepareRetry(err, deadline); err != nil {
			return err
		}
		if err := c.mem.reach(c.space.root(), deadline); err != nil {
			return err
		}
	}
	return c.breakAll() // connect again: the connections belong to the owner with the new number
}

// begin starts an operation. If the client was fenced, it takes a new number; if the members have
// changed, it uses the new view. It also tries to settle earlier operations with an unknown
// outcome, at most once in a lease, and after each change of the members.
func (c *Client) begin(deadline clock.Time) error {
	c.mem.cost, c.index.mismatches, c.index.match = kv.Cost{}, c.index.mismatches[:0], 0
	if c.ended {
		return kv.ErrClosed
	}
	if c.mem.rt.Now() >= deadline {
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	if err := c.mem.fab.Poll(); err != nil {
		return err
	}
	if c.mem.fenced {
		if err := c.rejoin(deadline); err != nil {
			return unchanged(err)
		}
	}
	if c.mem.newer != c.mem.view {
		if err := c.slots.follow(deadline); err != nil {
			return unchanged(err)
		}
		c.nextSettle = 0
	}
	if len(c.slots.orphans)+len(c.space.unsure)+len(c.space.limbo) > 0 && c.mem.rt.Now() >= c.nextSettle {
		c.nextSettle = c.mem.rt.Now().Add(c.mem.cfg.Lease)
		if err := errors.Join(c.slots.settleOrphans(deadline, deadline), c.slots.settleUnsure(deadline), c.space.settleLimbo(deadline)); err != nil && !errors.Is(err, kv.ErrTimeout) {
			return err
		}
	}
	return nil
}

// rejoin is called after another client has taken this one for dead. The client takes a new number.
// It has lost all blocks that it owned.
func (c *Client) rejoin(deadline clock.Time) error {
	was := c.space.super
	c.mem.id, c.slots.orphans = 0, nil
	c.space.clear()
	if err := c.breakAll(); err != nil {
		return err
	}
	c.mem.fenced = false
	err := c.introduce(deadline)
	// If a member is only absent, the store is not lost: a master removes that member.
	if !errors.Is(err, errAbsent) && (errors.Is(err, layout.ErrSuperblock) || errors.Is(err, errServers) || errors.Is(err, errFormatted)) {
		err = fmt.Errorf("%w: %w", kv.ErrLost, err)
	}
	if err != nil {
		c.mem.fenced, c.space.super = true, was
	}
	return err
}

// Super returns the superblock, which describes the store.
func (c *Client) Super() layout.Superblock { return c.space.super }

// Timeline returns the timeline of the client's operations: how much time they spend in which
// phase.
func (c *Client) Timeline() *kv.Timeline { return c.mem.rt }

func (c *Client) Last() kv.Cost { return c.mem.cost }

// MaxValue returns the length in bytes of the longest value that the store can store: its object
// must fit into a block.
func (c *Client) MaxValue() int { return c.space.largest()*layout.Unit - layout.Overhead }

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
	if !c.mem.fenced {
		_ = c.splits.complete(false, c.mem.rt.Now().Add(leaveTimeout))
	}
	end := c.mem.rt.Now().Add(farewellTimeout)
	for c.space.flush(); len(c.space.flight) > 0 && c.mem.fab.Wait(end, c.space.flight...) == nil; {
		c.space.flush()
	}
	if len(c.space.frees)+len(c.space.flight) > 0 {
		c.space.lose()
	}
	defer c.space.requests.join()
	if !c.mem.fenced && (c.space.owed || c.space.requests.unknown() || len(c.space.blocks)+len(c.slots.orphans)+len(c.space.limbo) > 0) {
		end = c.mem.rt.Now().Add(leaveTimeout)
		settle := func(end clock.Time) error { return c.slots.settleOrphans(end, end) }
		for _, step := range []func(clock.Time) error{settle, c.slots.settleUnsure, c.space.confess, c.space.leave} {
			if c.slots.following(end, func() error { return step(end) }) != nil && c.mem.fenced {
				break
			}
		}
	}
	return c.mem.close()
}
