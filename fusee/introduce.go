package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store/kv"
)

// errServers: the store was formatted on another list of servers.
var errServers = errors.New("the store was formatted on another list of memory servers")

// errFormatted: another store was made while a client connected.
var errFormatted = errors.New("another store is being made, or was made a moment ago")

// introduce makes the client known to the store: it reads the superblocks and the view, takes a
// client number, and connects again as the owner with this number.
func (c *Client) introduce(deadline clock.Time) error {
	for {
		err := c.meet(deadline)
		if err == nil {
			err = c.enter(deadline)
		}
		if err == nil {
			c.space.use(c.mem.newer)
			err = c.index.loadDirectory(deadline)
		}
		if err == nil || errors.Is(err, verbs.ErrClosed) {
			return err
		}
		// Another client may have taken this client for dead, and fenced the number of this
		// attempt: the next attempt begins without a number.
		c.mem.view, c.mem.id, c.mem.fenced = 0, 0, false
		// If a member is absent, perhaps because it has lost its memory, a master removes it: the
		// store is not lost, and the client waits until the member is removed.
		waits := errors.Is(err, errReborn) || errors.Is(err, kv.ErrTimeout) && !c.mem.exempt
		retry := errors.Is(err, errView) || errors.Is(err, errAbsent) || waits && !errors.Is(err, kv.ErrLost)
		if !retry || c.mem.rt.Now() >= deadline {
			return err
		}
		if err := c.breakAll(); err != nil {
			return err
		}
		c.mem.rt.Sleep(glancePause)
	}
}

// errAbsent: a member of the store does not answer, or has lost its memory.
var errAbsent = errors.New("a member of the store is absent")

// meet reads the superblocks and views of all servers that answer. For a client, all members must
// answer and have the superblock of one store. A master may begin while members are absent.
func (c *Client) meet(deadline clock.Time) error {
	c.mem.view, c.mem.newer, c.mem.until, c.mem.missing = 0, 0, 0, 0
	for i := range c.mem.links {
		if c.mem.managed { // a server may have lost its memory and become a member again
			c.mem.links[i].boot = 0
		}
	}
	errs, supers := make([]error, len(c.mem.links)), make([]layout.Superblock, len(c.mem.links))
	for i := range c.mem.links {
		limit := deadline
		if len(c.mem.links) > 1 {
			limit = min(deadline, c.mem.rt.Now().Add(meetPatience))
		}
		var v layout.View
		if supers[i], v, errs[i] = c.superblock(i, limit); errs[i] == nil && v.Newer(c.mem.newer) {
			c.mem.newer = v
		}
	}
	c.mem.managed = c.mem.managed || c.mem.newer.Mastered()
	switch {
	case c.mem.newer.State() == layout.Gone:
		return c.mem.see(c.mem.newer)
	case !c.mem.newer.Valid(len(c.mem.links)):
		return errHostile
	}
	known := c.space.super.Generation != 0
	for i, s := range supers {
		if c.mem.newer != 0 && !c.mem.newer.Has(i) {
			continue
		}
		if errs[i] != nil && c.mem.exempt { // a master begins also if members do not answer, and removes them
			c.mem.missing |= 1 << i
			continue
		}
		switch empty := errors.Is(errs[i], errReborn) || errors.Is(errs[i], layout.ErrSuperblock); {
		case errs[i] == nil:
		case !empty || c.mem.managed || c.mem.newer == 0 && slices.ContainsFunc(errs, func(err error) bool { return errors.Is(err, kv.ErrTimeout) }):
			errs[i] = errors.Join(errAbsent, kv.TimedOut(errs[i]))
		case errors.Is(errs[i], errReborn):
			errs[i] = fmt.Errorf("%w: %w", kv.ErrLost, errs[i])
		}
		if errs[i] != nil {
			return fmt.Errorf("memory server %d: %w", i, errs[i])
		}
		if !known {
			c.space.super, known = s, true
			c.space.super.Server = 0
		}
		want := c.space.super
		want.Server = i
		if s != want || s.Shape.Servers != len(c.mem.links) || s.Shape.Len() > uint64(c.mem.links[i].mem.Len) {
			return fmt.Errorf("memory server %d: %w", i, errServers)
		}
	}
	if c.space.super.Shape.Format != layout.Hardened {
		return fmt.Errorf("a store of format %v: this client knows %v ones", c.space.super.Shape.Format, layout.Hardened)
	}
	lost := c.mem.newer != 0 && !c.space.super.Shape.Survives(c.mem.newer)
	switch {
	case c.mem.newer.State() != layout.Settled && !c.mem.exempt && (!c.mem.awaits || lost):
		// This is not the end of the store even if lost is true: a master may be waiting for servers that
		// answer later.
		return errView
	case lost:
		return errHostile
	}
	return nil
}

// enter takes a client number, and connects again as the owner with this number.
//
// In a store without a master, enter waits until its deadline for a server that does not answer. A
// master removes such a server. So in a store with a master each step waits only for meetPatience,
// and introduce begins again after that.
func (c *Client) enter(deadline clock.Time) error {
	limit := func() clock.Time {
		if c.mem.exempt || !c.mem.managed {
			return deadline
		}
		return min(deadline, c.mem.rt.Now().Add(meetPatience))
	}
	c.space.use(c.mem.newer)
	// In the middle of a change of the members, the primary of the index may be on another server
	// than before, which does not know the last client number yet.
	if c.mem.missing != 0 || c.mem.exempt && c.mem.newer.State() == layout.Preparing {
		if err := c.passOver(deadline); err != nil {
			return err
		}
	}
	c.mem.view = 0 // the client has no view yet; register ends the connections, which have no owner
	for {
		if err := c.register(limit()); err != nil {
			return err
		}
		if c.mem.newer.State() == layout.Settled || c.mem.exempt {
			break
		}
		if used, err := c.mem.used(limit()); err != nil || !used {
			// After a change of the view, the primary may be a server that has not learnt the last
			// client number yet. Such a server can give out a number twice.
			if err != nil {
				return err
			}
			break
		}
	}
	c.mem.view = c.mem.newer
	// Format removes the superblocks before it ends the connections of owners. So a superblock that
	// is read on a connection of this owner belongs to the store for which the connection was made.
	// A master that changes the members ends these connections, too. So if all members show the
	// same view on these connections, the server that has given out the number had this view.
	for i := range c.mem.links {
		if !c.mem.view.Has(i) || c.mem.missing>>i&1 == 1 {
			continue
		}
		s, v, err := c.superblock(i, limit())
		want := c.space.super
		want.Server = i
		switch {
		case errors.Is(err, layout.ErrSuperblock) || err == nil && s != want:
			err = errFormatted
		case err == nil && v != c.mem.view && !c.mem.exempt:
			err = errView
		}
		if err != nil {
			return fmt.Errorf("memory server %d: %w", i, err)
		}
	}
	return nil
}

// used reports whether another client has connected to a member with the number of this client.
// (Another client that has taken the number and has not connected yet finds another view when it
// connects, and takes another number.)
func (m *memory) used(deadline clock.Time) (bool, error) {
	for i := range m.servers(m.newer) {
		h, err := memservice.WhoIs(m.cfg.Context, m.cfg.Manager, m.cfg.Servers[i], m.id, deadline)
		switch {
		case errors.Is(err, verbs.ErrClosed):
			return true, err
		case err != nil: // introduce begins again only after errors that are timeouts
			return true, kv.TimedOut(err)
		case h.Peer != "" || h.Fenced:
			return true, nil
		}
	}
	return false, nil
}

// passOver is called by a master that begins while members do not answer. It does not use the
// replicas of the index on these members. Client numbers then come from the first of the other
// servers. New numbers must be greater than all that clients and former masters have used, because
// the servers may have fenced these clients: see numberFrom.
func (c *Client) passOver(deadline clock.Time) error {
	c.space.index = slices.DeleteFunc(c.space.index, func(i int) bool { return c.mem.missing>>i&1 == 1 })
	if len(c.space.index) == 0 {
		return fmt.Errorf("%w: no memory server with the index answers", kv.ErrLost)
	}
	last := uint32(0)
	for i, to := range c.mem.cfg.Servers {
		if !c.mem.newer.Has(i) || c.mem.missing>>i&1 == 1 {
			continue
		}
		n, err := memservice.DisconnectOthers(c.mem.cfg.Context, c.mem.cfg.Manager, to, 1<<32-1, deadline)
		if err != nil {
			return kv.TimedOut(err)
		}
		last = max(last, n)
	}
	return c.numberFrom(last, deadline)
}

// numberFrom raises the word with the last number of a client, on the server with the primary, to
// at least last: the greatest number that has connected to any server. A client that has taken a
// number from the former primary and has not connected yet finds another view when it connects, and
// takes another number.
func (c *Client) numberFrom(last uint32, deadline clock.Time) error {
	for {
		found, err := c.space.slotAt(c.space.root(), layout.ClientWord, deadline)
		if err != nil || uint64(found) >= uint64(last) {
			return err
		}
		c.mem.swap(c.space.root(), layout.ClientWord, uint64(found), uint64(last))
		if err := c.mem.do(deadline); err != nil {
			return err
		}
	}
}

// superblock reads the superblock and the view of a server.
func (c *Client) superblock(i int, deadline clock.Time) (s layout.Superblock, v layout.View, err error) {
	const n = layout.ViewWord + 8
	if err := c.mem.reach(i, deadline); err != nil {
		return s, v, err
	}
	if c.index.scratch, err = c.mem.fetch(c.index.scratch, i, 0, n, deadline); err != nil {
		return s, v, err
	}
	return s, layout.View(binary.LittleEndian.Uint64(c.index.scratch[layout.ViewWord:])), s.Parse(c.index.scratch)
}

// breakAll ends all connections.
func (c *Client) breakAll() error {
	for i := range c.mem.links {
		if err := c.mem.fab.Break(i); err != nil {
			return err
		}
	}
	return nil
}
