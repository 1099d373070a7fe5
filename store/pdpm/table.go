package pdpm

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// Bounds of a table, and what it is unless its Shape says otherwise. DefaultLease is long, because
// the clients of a busy machine stop for a while now and then.
const (
	DefaultValue = 232
	DefaultLease = 500 * time.Millisecond
	maxValue     = 8 << 10
	maxEntries   = 1 << 24
	bufferLen    = 32 << 10
	// maxKnown is how many entries a client remembers.
	maxKnown = 1 << 20
	// A key is looked for in up to maxProbe places, window at a time.
	maxProbe = 256
	window   = 32
)

var form = passive.Form{Buffer: bufferLen, Len: superLen, Clients: atClients}

// Format makes an empty table of pDPM-Direct, whatever the memory of the servers has; see
// passive.Form.Format. Of the shape, Value, Entries and Lease are used; 0: the defaults, and as many
// entries as there is room for.
func Format(cfg passive.Config, s Shape, deadline clock.Time) (Shape, error) {
	return s.format(cfg, direct, deadline)
}

func (s Shape) format(cfg passive.Config, k kind, deadline clock.Time) (Shape, error) {
	if s.Value < 0 || s.Value > maxValue || s.Entries < 0 || s.Entries > maxEntries || s.Lease < 0 {
		return s, fmt.Errorf("a table with %d entries, values of %d bytes and a lease of %v: want at most %d and %d, and no negative lease",
			s.Entries, s.Value, s.Lease, maxEntries, maxValue)
	}
	err := form.Format(cfg, func(c *passive.Conn, memory int) ([]byte, uint64, error) {
		s.Value, s.Lease, s.Servers = cmp.Or(s.Value, DefaultValue), cmp.Or(s.Lease, DefaultLease), c.Servers()
		for s.Generation = 0; s.Generation == 0; {
			s.Generation = c.Runtime().Rand().Uint64()
		}
		room := max(0, memory-int(Shape{Value: s.Value}.size())-line) / (keyLen + s.entryLen())
		if s.Entries = cmp.Or(s.Entries, min(room, maxEntries)); s.Entries < 1 || s.Entries > room {
			return nil, 0, fmt.Errorf("%w: %d bytes of a memory server have room for %d entries with values of %d bytes; choose other --entries or --value", kv.ErrFull, memory, room, s.Value)
		}
		return s.encode(k), s.size(), nil
	}, deadline)
	return s, err
}

// Client is one client of a table. It is used by one thread at a time.
type Client struct {
	conn  *passive.Conn
	shape Shape
	// known has the entries of keys.
	known map[uint64]entry
	// locks counts the locks of the client under its present number. stray: the client may have left
	// a lock under this number, so that it must take another one.
	locks uint32
	stray bool
	// buf is what is read, made what is written.
	buf, made []byte
	cost      kv.Cost
	before    int // round trips until the last operation
	ended     bool
}

var _ kv.Timed = (*Client)(nil)

// Open connects to a table; see passive.Form.Join.
func Open(cfg passive.Config, deadline clock.Time) (*Client, error) {
	c := &Client{known: make(map[uint64]entry)}
	var err error
	c.conn, err = form.Join(cfg, func(conn *passive.Conn, server int, first []byte) error {
		return c.shape.learn(direct, conn, server, first)
	}, deadline)
	if err != nil {
		return nil, err
	}
	return c, nil
}

// learn compares a superblock with the shape, or makes it the shape if that is not known yet.
func (s *Shape) learn(k kind, conn *passive.Conn, server int, first []byte) error {
	var found Shape
	if err := found.parse(first, k, conn.Len(server)); err != nil {
		return err
	}
	if *s == (Shape{}) {
		*s = found
	}
	if found != *s || found.Servers != conn.Servers() {
		return errServers
	}
	return nil
}

// serverOf is the server that has the entry of a key, and the hash by which it was chosen.
func (s *Shape) serverOf(key uint64) (server int, h uint64) {
	h = hash(key) >> 16
	return int(h % uint64(s.Servers)), h
}

// entry is the entry of a key: its server, and its place there.
type entry struct {
	server int
	at     uint64
}

// hash mixes the bits of a key.
func hash(key uint64) uint64 {
	key = (key ^ key>>31) * 0x7fb5d329728ea185
	return (key ^ key>>27) * 0x81dadef4bc2dd44d
}

// find returns the entry of a key. If there is none, claim has it claim one; otherwise the error is
// kv.ErrNotFound.
func (c *Client) find(key uint64, claim bool, deadline clock.Time) (entry, error) {
	if e, ok := c.known[key]; ok {
		return e, nil
	}
	server, h := c.shape.serverOf(key)
	e := entry{server: server}
	place := h / uint64(c.shape.Servers) % uint64(c.shape.Entries)
	for i, n := uint64(0), uint64(0); i < min(maxProbe, uint64(c.shape.Entries)); i += n {
		first := (place + i) % uint64(c.shape.Entries)
		n = min(window, uint64(c.shape.Entries)-first)
		var list [window * keyLen]byte
		if err := c.conn.Read(e.server, c.shape.keyAt(first), list[:], deadline); err != nil {
			return e, err
		}
		for j := range n {
			owner := binary.LittleEndian.Uint64(list[j*keyLen:])
			if owner == 0 && !claim {
				return e, kv.ErrNotFound
			}
			if owner == 0 {
				// Whose CAS it was does not matter: the entry has one key from now on.
				var err error
				if owner, _, err = c.conn.Swap(e.server, c.shape.keyAt(first+j), 0, key+1, deadline); err != nil {
					return e, err
				}
				if owner == 0 {
					owner = key + 1
				}
			}
			if owner == key+1 {
				e.at = c.shape.entryAt(first + j)
				if len(c.known) >= maxKnown {
					clear(c.known)
				}
				c.known[key] = e
				return e, nil
			}
		}
	}
	if !claim {
		return e, kv.ErrNotFound
	}
	return e, fmt.Errorf("%w: %d places from that of key %d on have other keys; `rdmalab pdpm-direct start --fresh --entries %d` makes an empty table with twice the room",
		kv.ErrFull, min(maxProbe, c.shape.Entries), key, 2*c.shape.Entries)
}

// Shape describes the table.
func (c *Client) Shape() Shape { return c.shape }

// MaxValue is the longest value in bytes.
func (c *Client) MaxValue() int { return c.shape.Value }

// Timeline implements kv.Timed.
func (c *Client) Timeline() *kv.Timeline { return c.conn.Runtime() }

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
