package template

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// DefaultValue is the longest value of a table unless its Shape says otherwise, in bytes: objects
// have 256 bytes. bufferLen is the length of a client's buffer, and of what Format writes at once.
const (
	DefaultValue = 256 - headLen
	bufferLen    = 32 << 10
	maxValue     = bufferLen - headLen
)

// Format makes an empty table, whatever the memory of the servers has. Of the shape, Value and
// Slots are used; 0: DefaultValue, and a slot for two objects. First it removes the superblocks of
// a former table, then it ends the connections of its clients: none of their requests arrives
// later, and no client gets the number of one of them. No two calls may make a table in the same
// memory at once: the later one would clear what clients of the other have written.
func Format(cfg passive.Config, s Shape, deadline clock.Time) (_ Shape, err error) {
	if s.Value < 0 || s.Value > maxValue || s.Slots < 0 || s.Slots > maxObjects {
		return s, fmt.Errorf("a table with %d slots and values of %d bytes: want at most %d and %d", s.Slots, s.Value, maxObjects, maxValue)
	}
	c, err := passive.Open(cfg, bufferLen)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	last, memory := uint32(0), maxObjects<<15
	for i := range c.Servers() {
		if err := c.Write(i, 0, make([]byte, superLen), deadline); err != nil {
			return s, err
		}
		n, err := c.Retire(i, deadline)
		if err != nil {
			return s, err
		}
		last, memory = max(last, n), min(memory, c.Len(i))
	}
	s.Value, s.Servers, s.Objects = cmp.Or(s.Value, DefaultValue), c.Servers(), 0
	for s.Generation = 0; s.Generation == 0; {
		s.Generation = c.Runtime().Rand().Uint64()
	}
	room := memory - int(Shape{Value: s.Value}.size())
	s.Slots = cmp.Or(s.Slots, min(maxObjects, max(0, room)/(slotLen+2*s.objectLen())))
	if s.Objects = min(maxObjects, (room-s.Slots*slotLen)/s.objectLen()); s.Slots < 1 || s.Objects < 1 {
		return s, fmt.Errorf("%w: %d bytes of a memory server have no room for %d slots and an object of %d bytes", kv.ErrFull, memory, s.Slots, s.objectLen())
	}
	zeros := make([]byte, bufferLen)
	for i := range c.Servers() {
		for at, end := uint64(superLen), s.objectAt(1); at < end; at += bufferLen {
			if err := c.Write(i, at, zeros[:min(bufferLen, end-at)], deadline); err != nil {
				return s, err
			}
		}
	}
	b := s.encode()
	binary.LittleEndian.PutUint64(b[atClients:], uint64(last))
	for i := range c.Servers() { // last: without superblocks no client opens the table
		if err := c.Write(i, 0, b, deadline); err != nil {
			return s, err
		}
	}
	return s, nil
}

// Client is one client of a table. It is used by one thread at a time.
type Client struct {
	conn   *passive.Conn
	shape  Shape
	spare  []uint32 // an object of each server that is this client's; 0: none
	object []byte
	cost   kv.Cost
	before int // round trips until the last operation
	ended  bool
}

var _ kv.Store = (*Client)(nil)

// Open connects to a table: first to read its superblocks and to take a number, then as the owner
// with this number, by which Format can end the connections.
func Open(cfg passive.Config, deadline clock.Time) (_ *Client, err error) {
	c := &Client{spare: make([]uint32, len(cfg.Servers))}
	if c.conn, err = passive.Open(cfg, bufferLen); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.conn.Close())
		}
	}()
	var b [superLen]byte
	for i := range c.conn.Servers() {
		if err := c.conn.Read(i, 0, b[:], deadline); err != nil {
			return nil, err
		}
		var s Shape
		if err := s.parse(b[:], c.conn.Len(i)); err != nil {
			return nil, fmt.Errorf("memory server %d: %w", i, err)
		}
		if i == 0 {
			c.shape = s
		}
		if s != c.shape || s.Servers != c.conn.Servers() {
			return nil, fmt.Errorf("memory server %d: %w", i, errServers)
		}
	}
	number, err := c.conn.Count(0, atClients, deadline)
	if err == nil && number >= 1<<32-1 {
		err = kv.ErrFull
	}
	if err = errors.Join(err, c.conn.Become(uint32(number)+1)); err != nil {
		return nil, err
	}
	c.conn.Expect(superLen, func(server int, first []byte) error {
		var s Shape
		if s.parse(first, c.conn.Len(server)) != nil || s != c.shape {
			return fmt.Errorf("%w: memory server %d has another table, or none", kv.ErrLost, server)
		}
		return nil
	})
	for i := range c.conn.Servers() {
		if err := c.conn.Read(i, 0, b[:], deadline); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// Shape describes the table.
func (c *Client) Shape() Shape { return c.shape }

// MaxValue is the longest value in bytes.
func (c *Client) MaxValue() int { return c.shape.Value }

// Last implements kv.Store.
func (c *Client) Last() kv.Cost {
	return kv.Cost{RTTs: c.conn.RTTs() - c.before, Retries: c.cost.Retries}
}

// Close implements kv.Store.
func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	return c.conn.Close()
}
