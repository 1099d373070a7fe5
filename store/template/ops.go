package template

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/passive"
)

// errDamaged says that a slot names no object, or an object that is damaged or belongs to another slot
// or key.
var errDamaged = errors.New("the memory is damaged: a slot names no object, or not its own")

// slot is the slot of a key: its server, the place of its word there, and the word.
type slot struct {
	server int
	at     uint64
	word   word
}

// find reads the slot of a key; see passive.Conn.Find. If find has claimed the slot, the word is 0.
func (c *Client) find(key uint64, claim bool, deadline clock.Time) (slot, error) {
	var b [8]byte
	server, n, err := c.Conn.Find(c.shape.keys(), key, claim, b[:], deadline)
	return slot{server, c.shape.wordAt(n), word(binary.LittleEndian.Uint64(b[:]))}, err
}

// Get implements kv.Store.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.Begin(0, deadline); err != nil {
		return dst[:0], err
	}
	for before := word(0); ; c.Retries++ {
		s, err := c.find(key, false, deadline)
		switch n := s.word.object(); {
		case err != nil:
			return dst[:0], err
		case !s.word.alive():
			return dst[:0], kv.ErrNotFound
		case s.word == before, n == 0, n > uint32(c.shape.Objects):
			// The slot names no object, or has the same word as before the damaged object was read.
			// A slot never has the same word twice, so it named the damaged object all the time.
			return dst[:0], errDamaged
		}
		c.object = slices.Grow(c.object[:0], c.shape.objectLen())[:c.shape.objectLen()]
		if err := c.Conn.Read(s.server, c.shape.objectAt(s.word.object()), c.object, deadline); err != nil {
			return dst[:0], err
		}
		if v, ok := passive.Unseal(c.object, uint64(s.word), key); ok {
			return append(dst[:0], v...), nil
		}
		before = s.word // the key has changed meanwhile, and the object has another value
	}
}

// Put implements kv.Store.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	return c.change(key, value, put, deadline)
}

// Insert implements kv.Store.
func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	return c.change(key, value, insert, deadline)
}

// Delete implements kv.Store.
func (c *Client) Delete(key uint64, deadline clock.Time) error {
	return c.change(key, nil, remove, deadline)
}

// verb is the kind of a change.
type verb int

const (
	put verb = iota
	insert
	remove
)

// change makes a change of a key: a PUT, an INSERT or a DELETE.
func (c *Client) change(key uint64, value []byte, do verb, deadline clock.Time) error {
	if err := c.Begin(len(value), deadline); err != nil {
		return err
	}
	for ; ; c.Retries++ {
		s, err := c.find(key, do == insert, deadline)
		switch {
		case errors.Is(err, kv.ErrNotFound), err == nil && !s.word.alive() && do != insert:
			return kv.ErrNotFound
		case err == nil && s.word.alive() && do == insert:
			return kv.ErrExists
		case err == nil:
			err = c.prepare(s, key, value, do, deadline)
		}
		if err != nil {
			// nothing was changed yet, even if memory was lost
			return errors.Join(err, kv.ErrNoEffect)
		}
		made, err := c.swap(s, do, deadline)
		switch {
		case do == put && (err == nil || errors.Is(err, passive.ErrOpen)):
			// The CAS was made, or another client's change came first. In both cases the PUT counts
			// as made: in the second case just before that change, while the key existed.
			return nil
		case made, err != nil:
			return err
		}
	}
}

// prepare makes sure that the client has a spare object on the server of a slot. For a PUT or an
// INSERT it writes the value into the object, sealed with the slot's next word. A DELETE does not
// write the object, but names it in the word. So no other client can make the same word, and of
// two clients that delete a key at the same time each knows which of them has deleted it.
func (c *Client) prepare(s slot, key uint64, value []byte, do verb, deadline clock.Time) error {
	spare := &c.spare[s.server]
	if *spare == 0 {
		n, err := c.Conn.Count(s.server, passive.SuperWord, deadline)
		if err == nil && n >= uint64(c.shape.Objects) {
			err = fmt.Errorf("%w: all %d objects of memory server %d are in use", kv.ErrFull, c.shape.Objects, s.server)
		}
		if err != nil {
			return err
		}
		*spare = uint32(n) + 1
	}
	if do == remove {
		return nil
	}
	c.object = passive.Seal(c.object[:0], value, uint64(s.word.next(*spare)), key)
	return c.Conn.Write(s.server, c.shape.objectAt(*spare), c.object, deadline)
}

// swap replaces the word of a slot by the next one, which names the spare object. If `made` is
// true, the object of the replaced word becomes the spare one. If the outcome is unknown, no client
// uses either object again as its spare.
func (c *Client) swap(s slot, do verb, deadline clock.Time) (made bool, err error) {
	spare := &c.spare[s.server]
	object := *spare
	*spare = 0 // until the outcome is known
	next := s.word.next(object)
	if do == remove {
		next |= deleted
	}
	after := func(found uint64) bool { return word(found).version() > next.version() }
	made, err = c.Conn.Change(s.server, s.at, uint64(s.word), uint64(next), after, deadline)
	switch {
	case made:
		*spare = s.word.object()
	case err == nil, errors.Is(err, kv.ErrNoEffect):
		*spare = object
	}
	return made, err
}
