package template

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// A key is looked for in up to maxProbe slots from its place on, window slots at a time.
const (
	maxProbe = 256
	window   = 16
)

// errKey: the slots have no room for this key. errDamaged: a slot names an object that is not its.
var (
	errKey     = errors.New("the key 2^64-1 cannot be inserted")
	errDamaged = errors.New("the memory is damaged: an object is not the one that its slot names")
)

// slot is the slot of a key: its server, its place there, and its word.
type slot struct {
	server int
	at     uint64
	word   word
}

// hash mixes the bits of a key.
func hash(key uint64) uint64 {
	key = (key ^ key>>32) * 0x9e3779b97f4a7c15
	return (key ^ key>>29) * 0xbf58476d1ce4e5b9
}

// find reads the slot of a key. Without a slot the word is 0; claim has it claim one.
func (c *Client) find(key uint64, claim bool, deadline clock.Time) (slot, error) {
	h := hash(key) >> 16
	s := slot{server: int(h % uint64(c.shape.Servers))}
	if key+1 == 0 {
		return s, nil
	}
	place := h / uint64(c.shape.Servers) % uint64(c.shape.Slots)
	for i := uint64(0); i < maxProbe; i += window {
		var list [window * slotLen]byte
		err := c.conn.Read(s.server, c.shape.slotAt(place+i), list[:], deadline)
		if err != nil {
			return s, err
		}
		for j := range uint64(window) {
			s.at = c.shape.slotAt(place + i + j)
			owner := binary.LittleEndian.Uint64(list[j*slotLen:])
			if owner == 0 && claim {
				// Whose CAS it was does not matter: the slot has one key from now on. Its word may have been
				// changed since it was read; then the CAS on it will fail.
				if owner, _, err = c.conn.Swap(s.server, s.at, 0, key+1, deadline); err != nil || owner == 0 {
					return s, err
				}
			}
			if owner == 0 {
				return s, nil
			}
			if owner == key+1 {
				s.word = word(binary.LittleEndian.Uint64(list[j*slotLen+8:]))
				return s, nil
			}
		}
	}
	if claim {
		return s, fmt.Errorf("%w: %d slots from the place of key %d on have other keys", kv.ErrFull, maxProbe, key)
	}
	return s, nil
}

// Get implements kv.Store.
func (c *Client) Get(key uint64, dst []byte, deadline clock.Time) ([]byte, error) {
	if err := c.begin(0, deadline); err != nil {
		return dst[:0], err
	}
	for before := word(0); ; c.cost.Retries++ {
		s, err := c.find(key, false, deadline)
		if err == nil && !s.word.alive() {
			err = kv.ErrNotFound
		}
		if err == nil && s.word == before { // words do not come back: the object was this one all the time
			err = errDamaged
		}
		if err != nil {
			return dst[:0], err
		}
		if s.word.object() == 0 || s.word.object() > uint32(c.shape.Objects) {
			return dst[:0], errDamaged
		}
		c.object = slices.Grow(c.object[:0], c.shape.objectLen())[:c.shape.objectLen()]
		if err := c.conn.Read(s.server, c.shape.objectAt(s.word.object()), c.object, deadline); err != nil {
			return dst[:0], err
		}
		if v, ok := valueOf(c.object, s.word, key); ok {
			return append(dst[:0], v...), nil
		}
		before = s.word // the key has changed, and its object is reused
	}
}

// Put implements kv.Store.
func (c *Client) Put(key uint64, value []byte, deadline clock.Time) error {
	if err := c.begin(len(value), deadline); err != nil {
		return err
	}
	s, err := c.find(key, false, deadline)
	if err == nil && !s.word.alive() {
		return kv.ErrNotFound
	}
	if err == nil {
		err = c.write(s, key, value, deadline)
	}
	if err != nil {
		return unchanged(err)
	}
	// Whatever the CAS finds: it was made, or it was too late and a change of another client came
	// first. Then this PUT has happened just before that, while the key existed.
	_, err = c.change(s, 0, deadline)
	if errors.Is(err, errUnknown) {
		return nil
	}
	return err
}

// Insert implements kv.Store.
func (c *Client) Insert(key uint64, value []byte, deadline clock.Time) error {
	if err := c.begin(len(value), deadline); err != nil {
		return err
	}
	if key+1 == 0 {
		return errors.Join(errKey, kv.ErrNoEffect)
	}
	for ; ; c.cost.Retries++ {
		s, err := c.find(key, true, deadline)
		if err == nil && s.word.alive() {
			return kv.ErrExists
		}
		if err == nil {
			err = c.write(s, key, value, deadline)
		}
		if err != nil {
			return unchanged(err)
		}
		if done, err := c.change(s, 0, deadline); done || err != nil {
			return err
		}
	}
}

// Delete implements kv.Store. It puts the spare object into the word, unwritten, so that the word
// is this client's alone: two clients that delete a key at the same time know which of them did.
func (c *Client) Delete(key uint64, deadline clock.Time) error {
	if err := c.begin(0, deadline); err != nil {
		return err
	}
	for ; ; c.cost.Retries++ {
		s, err := c.find(key, false, deadline)
		if err == nil && !s.word.alive() {
			return kv.ErrNotFound
		}
		if err == nil {
			err = c.provide(s.server, deadline)
		}
		if err != nil {
			return unchanged(err)
		}
		if done, err := c.change(s, deleted, deadline); done || err != nil {
			return err
		}
	}
}

// begin starts an operation with a value of n bytes.
func (c *Client) begin(n int, deadline clock.Time) error {
	c.cost, c.before = kv.Cost{}, c.conn.RTTs()
	switch {
	case c.ended:
		return kv.ErrClosed
	case n > c.shape.Value:
		return errors.Join(kv.ErrTooLarge, kv.ErrNoEffect)
	case c.conn.Runtime().Now() >= deadline:
		return errors.Join(kv.ErrTimeout, kv.ErrNoEffect)
	}
	return nil
}

// unchanged marks an error before the CAS that changes the word, lost memory included.
func unchanged(err error) error { return errors.Join(err, kv.ErrNoEffect) }

// provide sees to it that the client has a spare object on a server.
func (c *Client) provide(server int, deadline clock.Time) error {
	if c.spare[server] != 0 {
		return nil
	}
	n, err := c.conn.Count(server, atObjects, deadline)
	if err == nil && n >= uint64(c.shape.Objects) {
		err = fmt.Errorf("%w: all %d objects of memory server %d are in use", kv.ErrFull, c.shape.Objects, server)
	}
	if err == nil {
		c.spare[server] = uint32(n) + 1
	}
	return err
}

// write writes the spare object for the next word of a slot.
func (c *Client) write(s slot, key uint64, value []byte, deadline clock.Time) error {
	if err := c.provide(s.server, deadline); err != nil {
		return err
	}
	spare := c.spare[s.server]
	c.object = putObject(c.object, s.word.next(spare), key, value)
	return c.conn.Write(s.server, c.shape.objectAt(spare), c.object, deadline)
}

// errUnknown: other clients have changed the slot since, so it is not known whether a CAS was made.
var errUnknown = fmt.Errorf("%w: the connection failed, and the key has changed", kv.ErrTimeout)

// change swaps the word of a slot for the next one, with the spare object and a mark. done: the CAS
// was made, and the object of the former word is the spare one now. An object whose owner is not
// known is used by no client any more.
func (c *Client) change(s slot, mark word, deadline clock.Time) (done bool, err error) {
	spare := &c.spare[s.server]
	object := *spare
	next := s.word.next(object) | mark
	*spare = 0 // until the outcome is known
	got, sent, err := c.conn.Swap(s.server, s.at+8, uint64(s.word), uint64(next), deadline)
	found := word(got)
	switch {
	case err != nil && sent == 0:
		*spare = object
		return false, unchanged(err)
	case errors.Is(err, kv.ErrLost):
		return false, errors.Join(err, kv.ErrTimeout) // the CAS may have been executed before the memory was lost
	case err != nil:
		return false, err
	case found == s.word || found == next && sent > 1:
		*spare = s.word.object()
		return true, nil
	case sent > 1 && found.version() > next.version():
		return false, errUnknown
	}
	*spare = object
	return false, nil
}
