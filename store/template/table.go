package template

import (
	"cmp"
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

// form is where a table's clients find what they all need.
var form = passive.Form{Buffer: bufferLen, Len: superLen, Clients: atClients}

// Format makes an empty table, whatever the memory of the servers has; see passive.Form.Format. Of
// the shape, Value and Slots are used; 0: DefaultValue, and a slot for two objects.
func Format(cfg passive.Config, s Shape, deadline clock.Time) (Shape, error) {
	if s.Value < 0 || s.Value > maxValue || s.Slots < 0 || s.Slots > maxObjects {
		return s, fmt.Errorf("a table with %d slots and values of %d bytes: want at most %d and %d", s.Slots, s.Value, maxObjects, maxValue)
	}
	err := form.Format(cfg, func(c *passive.Conn, memory int) ([]byte, uint64, error) {
		s.Value, s.Servers, s.Objects = cmp.Or(s.Value, DefaultValue), c.Servers(), 0
		for s.Generation = 0; s.Generation == 0; {
			s.Generation = c.Runtime().Rand().Uint64()
		}
		memory = min(memory, maxObjects<<15)
		room := memory - int(Shape{Value: s.Value}.size())
		s.Slots = cmp.Or(s.Slots, min(maxObjects, max(0, room)/(slotLen+2*s.objectLen())))
		if s.Objects = min(maxObjects, (room-s.Slots*slotLen)/s.objectLen()); s.Slots < 1 || s.Objects < 1 {
			return nil, 0, fmt.Errorf("%w: %d bytes of a memory server have no room for %d slots and an object of %d bytes", kv.ErrFull, memory, s.Slots, s.objectLen())
		}
		return s.encode(), s.objectAt(1), nil
	}, deadline)
	return s, err
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

var _ kv.Timed = (*Client)(nil)

// Open connects to a table; see passive.Form.Join.
func Open(cfg passive.Config, deadline clock.Time) (*Client, error) {
	c := &Client{spare: make([]uint32, len(cfg.Servers))}
	var err error
	c.conn, err = form.Join(cfg, func(conn *passive.Conn, server int, first []byte) error {
		var s Shape
		if err := s.parse(first, conn.Len(server)); err != nil {
			return err
		}
		if c.shape == (Shape{}) {
			c.shape = s
		}
		if s != c.shape || s.Servers != conn.Servers() {
			return errServers
		}
		return nil
	}, deadline)
	if err != nil {
		return nil, err
	}
	return c, nil
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
