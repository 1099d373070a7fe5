package pdpm

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Limits of a table, and the defaults for its Shape. DefaultLease is long, because clients on a
// busy machine may pause for a while.
const (
	DefaultValue = 232
	DefaultLease = 500 * time.Millisecond
	maxValue     = 8 << 10
	maxEntries   = 1 << 24
	bufferLen    = 32 << 10
	// maxKnown is the number of entries that a client remembers.
	maxKnown = 1 << 20
)

// Format makes an empty table of pDPM-Direct, whatever the memory of the servers holds; see
// passive.Form.Format. A 0 in s stands for the default; for Entries it is as many as fit.
func Format(cfg passive.Config, s Shape, deadline clock.Time) (Shape, error) {
	return s.format(cfg, direct, deadline)
}

func (s Shape) format(cfg passive.Config, form passive.Form, deadline clock.Time) (Shape, error) {
	if s.Value < 0 || s.Value > maxValue || s.Entries < 0 || s.Entries > maxEntries || s.Lease < 0 {
		return s, fmt.Errorf("a table with %d entries, values of %d bytes and a lease of %v: want at most %d and %d, and no negative lease",
			s.Entries, s.Value, s.Lease, maxEntries, maxValue)
	}
	err := form.Format(cfg, func(memory int) (n passive.Numbers, zeroed uint64, err error) {
		s.Value, s.Lease = cmp.Or(s.Value, DefaultValue), cmp.Or(s.Lease, DefaultLease)
		room := max(0, memory-int(Shape{Value: s.Value}.end())-line) / (keyLen + s.entryLen())
		if s.Entries = cmp.Or(s.Entries, min(room, maxEntries)); s.Entries < 1 || s.Entries > room {
			return n, 0, fmt.Errorf("%w: %d bytes of a memory server have room for %d entries with values of %d bytes; choose other --entries or --value", kv.ErrFull, memory, room, s.Value)
		}
		return s.numbers(), s.size(), nil
	}, deadline)
	return s, err
}

// Client is one client of a table. It is used by one thread at a time.
type Client struct {
	passive.Client
	shape Shape
	// known has the entries of the keys that the client has used.
	known map[uint64]entry
	// locks counts the locks that the client has taken under its present number. stray is true if
	// the client may have left a lock under this number. Then it must take another number.
	locks uint32
	stray bool
	// buf has the bytes that the client has read last. made has the bytes that it writes.
	buf, made []byte
}

var _ kv.Timed = (*Client)(nil)

// Open connects to a table; see passive.Form.Join.
func Open(cfg passive.Config, deadline clock.Time) (*Client, error) {
	conn, super, err := direct.Join(cfg, deadline)
	if err != nil {
		return nil, err
	}
	s := shapeOf(super.Numbers)
	return &Client{Client: conn.NewClient(s.Value), shape: s, known: make(map[uint64]entry)}, nil
}

// entry is the entry of a key: its server, and its place there.
type entry struct {
	server int
	at     uint64
}

// find returns the entry of a key. If the key has none, find claims a free entry for it if claim is
// true; otherwise the error is kv.ErrNotFound.
func (c *Client) find(key uint64, claim bool, deadline clock.Time) (entry, error) {
	if e, ok := c.known[key]; ok {
		return e, nil
	}
	server, n, err := c.Conn.Find(c.shape.keys(), key, claim, nil, deadline)
	e := entry{server, c.shape.entryAt(n)}
	switch {
	case errors.Is(err, kv.ErrFull):
		err = fmt.Errorf("%w; `rdmalab pdpm-direct start --fresh --entries %d` makes an empty table with twice the room", err, 2*c.shape.Entries)
	case err == nil:
		if len(c.known) >= maxKnown {
			clear(c.known)
		}
		c.known[key] = e
	}
	return e, err
}

func (c *Client) Shape() Shape { return c.shape }
