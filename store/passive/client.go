package passive

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Client has what the clients of all stores on a Conn have in common. A store's client embeds it,
// calls Begin first in each operation, and adds 1 to Retries when it tries again.
type Client struct {
	Conn *Conn
	// Retries counts the attempts of the operation that failed because another client was faster.
	Retries int

	largest int  // length of the longest value
	before  int  // the round trips of the Conn when the operation began
	ended   bool // true after Close
}

// NewClient makes a Client of a store for values of up to largest bytes. The Client closes the
// Conn.
func (c *Conn) NewClient(largest int) Client { return Client{Conn: c, largest: largest} }

// HolderOf returns the number of the memory server that has a key, from 0, as PlaceOf computes it.
// If a server has lost its memory, clients may report only keys of that server as lost. A store
// that places keys in another way has its own method HolderOf.
func (c *Client) HolderOf(key uint64) (server int) {
	server, _ = PlaceOf(key, c.Conn.Servers())
	return server
}

// Begin begins an operation that writes a value of n bytes; n is 0 if it writes none. If Begin
// fails, the operation must end with this error and has no effect.
func (c *Client) Begin(n int, deadline clock.Time) error {
	c.Retries, c.before = 0, c.Conn.RTTs()
	switch {
	case c.ended:
		return kv.ErrClosed
	case n > c.largest:
		return errors.Join(fmt.Errorf("%w: %d bytes, and the table is for up to %d", kv.ErrTooLarge, n, c.largest), kv.ErrNoEffect)
	case c.Conn.Runtime().Now() >= deadline:
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	return nil
}

// MaxValue returns the length of the longest value that the store accepts, in bytes.
func (c *Client) MaxValue() int { return c.largest }

func (c *Client) Timeline() *kv.Timeline { return c.Conn.Runtime() }

func (c *Client) Last() kv.Cost {
	return kv.Cost{RTTs: c.Conn.RTTs() - c.before, Retries: c.Retries}
}

func (c *Client) Close() error {
	if c.ended {
		return nil
	}
	c.ended = true
	return c.Conn.Close()
}
