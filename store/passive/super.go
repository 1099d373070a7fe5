package passive

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Form describes the beginning of each server's part of a store, its superblock.
type Form struct {
	// Buffer is how many bytes one operation of a client moves at most. Len is the length of a
	// superblock, at most Buffer. Clients is the place in it of a word that counts clients, on the
	// first server.
	Buffer, Len int
	Clients     uint64
}

// Format makes an empty store, whatever the memory of the servers has. First it removes the
// superblocks of a former store, then it ends the connections of its clients: none of their requests
// arrives later, and no client gets the number of one of them. plan says what the new superblocks
// are, for servers of which each lends at least memory bytes, and where the part ends that must be
// zero. No two calls may make a store in the same memory at once: the later one would clear what
// clients of the other have written.
func (f Form) Format(cfg Config, plan func(c *Conn, memory int) (super []byte, end uint64, err error), deadline clock.Time) (err error) {
	c, err := Open(cfg, f.Buffer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	last, memory, zeros := uint32(0), 0, make([]byte, f.Buffer)
	for i := range c.Servers() {
		if err := c.Write(i, 0, zeros[:f.Len], deadline); err != nil {
			return err
		}
		n, err := c.Retire(i, deadline)
		if err != nil {
			return err
		}
		if last = max(last, n); i == 0 || c.Len(i) < memory {
			memory = c.Len(i)
		}
	}
	super, end, err := plan(c, memory)
	if err != nil {
		return err
	}
	for i := range c.Servers() {
		for at := uint64(f.Len); at < end; at += uint64(f.Buffer) {
			if err := c.Write(i, at, zeros[:min(uint64(f.Buffer), end-at)], deadline); err != nil {
				return err
			}
		}
	}
	binary.LittleEndian.PutUint64(super[f.Clients:], uint64(last))
	for i := range c.Servers() { // last: without superblocks no client opens the store
		if err := c.Write(i, 0, super, deadline); err != nil {
			return err
		}
	}
	return nil
}

// Join connects a client: first to have check judge the superblocks, then with a number of its own,
// by which others can end the connections (Format, memservice.Fence). check judges the superblock on
// each later connection, too; an error is kv.ErrLost then.
func (f Form) Join(cfg Config, check func(c *Conn, server int, first []byte) error, deadline clock.Time) (_ *Conn, err error) {
	c, err := Open(cfg, f.Buffer)
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.Close())
		}
	}()
	b := make([]byte, f.Len)
	for i := range c.Servers() {
		if err := c.Read(i, 0, b, deadline); err != nil {
			return nil, err
		}
		if err := check(c, i, b); err != nil {
			return nil, fmt.Errorf("memory server %d: %w", i, err)
		}
	}
	c.Expect(f.Len, func(server int, first []byte) error {
		if err := check(c, server, first); err != nil {
			return fmt.Errorf("%w: memory server %d: %w", kv.ErrLost, server, err)
		}
		return nil
	})
	if err := f.Number(c, deadline); err != nil {
		return nil, err
	}
	for i := range c.Servers() {
		if err := c.Read(i, 0, b, deadline); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Number gives a client that has joined another number.
func (f Form) Number(c *Conn, deadline clock.Time) error {
	if err := c.Become(0); err != nil {
		return err
	}
	number, err := c.Count(0, f.Clients, deadline)
	if err == nil && number >= 1<<32-1 {
		err = kv.ErrFull
	}
	return errors.Join(err, c.Become(uint32(number)+1))
}
