package bytekeys

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Client is a client of a store whose keys are byte strings. Like the kv.Store below it, it is used
// by one thread at a time. Deadlines are those of kv.Store; errors are those of kv.Store and
// ErrForeign.
type Client struct {
	s     kv.Store
	hash  func([]byte) uint64
	entry []byte // the entry to write
	got   []byte // the bytes that were read last
	cost  kv.Cost
}

// New makes a Client over s. Client.Close closes s, too. All clients of a store must pass the
// function Hash. Tests pass another function to make keys with equal hashes.
func New(s kv.Store, hash func(key []byte) uint64) *Client { return &Client{s: s, hash: hash} }

// Get appends the value of key to dst[:0] and returns the slice.
func (c *Client) Get(key, dst []byte, deadline clock.Time) ([]byte, error) {
	c.cost = kv.Cost{}
	hash := c.hash(key)
	for i := range maxPlaces {
		number := claimOf(hash, i)
		holder, value, err := c.read(number+1, filled, deadline)
		if err == nil && string(holder) == string(key) {
			return append(dst[:0], value...), nil
		}
		if errors.Is(err, kv.ErrNotFound) || errors.Is(err, kv.ErrLost) {
			absent := err // the error of Get if the place belongs to the key
			holder, _, err = c.read(number, claimed, deadline)
			if err == nil && string(holder) == string(key) {
				return dst[:0], absent
			}
		}
		if err != nil { // also kv.ErrNotFound: the key has claimed no place
			return dst[:0], err
		}
	}
	return dst[:0], kv.ErrNotFound
}

// Put replaces the value of a key.
func (c *Client) Put(key, value []byte, deadline clock.Time) error {
	number, err := c.begin(key, value, false, deadline)
	if err != nil {
		return err
	}
	return c.put(number, deadline)
}

// Insert adds a new key with its value.
func (c *Client) Insert(key, value []byte, deadline clock.Time) error {
	number, err := c.begin(key, value, true, deadline)
	if err != nil {
		return err
	}
	err = c.insert(number, deadline)
	if errors.Is(err, kv.ErrExists) {
		if _, _, foreign := c.read(number, filled, deadline); errors.Is(foreign, ErrForeign) {
			return noEffect(foreign)
		}
	}
	return err
}

// Upsert sets the value of a key, whether the key exists or not. If the store has no UPSERT, it
// tries PUT and INSERT in turn.
func (c *Client) Upsert(key, value []byte, deadline clock.Time) error {
	number, err := c.begin(key, value, true, deadline)
	if err != nil {
		return err
	}
	if u, ok := c.s.(kv.Upserter); ok {
		err := u.Upsert(number, c.entry, deadline)
		return c.count(err)
	}
	retries, err := kv.PutOrInsert(
		func() error { return c.put(number, deadline) },
		func() error { return c.insert(number, deadline) },
	)
	c.cost.Retries += retries
	return err
}

// Delete removes a key.
func (c *Client) Delete(key []byte, deadline clock.Time) error {
	c.cost = kv.Cost{}
	number, err := c.place(key, false, deadline)
	if err != nil {
		return noEffect(err)
	}
	err = c.s.Delete(number, deadline)
	return c.count(err)
}

func (c *Client) Last() kv.Cost { return c.cost }

func (c *Client) Close() error { return c.s.Close() }

// MaxEntry returns how many bytes a key, its value and the header of the entry may have together.
// It returns 0 if the store's client does not know that.
func (c *Client) MaxEntry() int {
	if b, ok := c.s.(interface{ MaxValue() int }); ok {
		return b.MaxValue()
	}
	return 0
}

// begin is called at the start of a write. It checks the lengths, finds the number of the key's
// entry (see place), and makes the entry to write. If claim is true, a key that has no number yet
// claims one.
func (c *Client) begin(key, value []byte, claim bool, deadline clock.Time) (number uint64, err error) {
	c.cost = kv.Cost{}
	n, most := entryLen(len(key), len(value)), c.MaxEntry()
	if most > 0 && n > most {
		return 0, errors.Join(fmt.Errorf("%w: a key of %d bytes and a value of %d make an entry of %d; the store's limit is %d",
			kv.ErrTooLarge, len(key), len(value), n, most), kv.ErrNoEffect)
	}
	if number, err = c.place(key, claim, deadline); err != nil {
		return 0, noEffect(err)
	}
	c.entry = appendEntry(c.entry[:0], filled, key, value)
	return number, nil
}

// place returns the number under which the store c.s has the entry of a key: key and value. If the
// key has not claimed a number yet, place claims one if claim is true; otherwise the error is
// kv.ErrNotFound. It is kv.ErrFull if other keys have all numbers that the key's hash allows.
func (c *Client) place(key []byte, claim bool, deadline clock.Time) (data uint64, err error) {
	data, lost, err := c.search(key, claim, false, deadline)
	if lost && errors.Is(err, kv.ErrNotFound) {
		data, _, err = c.search(key, claim, true, deadline)
	}
	if claim && errors.Is(err, kv.ErrNotFound) {
		err = fmt.Errorf("%w: %d keys have the same hash", kv.ErrFull, maxPlaces)
	}
	return data, err
}

// search tries the places of a key in turn. If claim is true, the key takes the first place that is
// not claimed. It may take a place whose claim was lost only if `again` is true, because the key's
// own claim may be at a later place. lost is true if search has passed over such a place.
func (c *Client) search(key []byte, claim, again bool, deadline clock.Time) (data uint64, lost bool, err error) {
	hash := c.hash(key)
	for i := range maxPlaces {
		number := claimOf(hash, i)
		holder, _, err := c.read(number, claimed, deadline)
		gone, free := errors.Is(err, kv.ErrLost), errors.Is(err, kv.ErrNotFound)
		switch {
		case claim && gone && !again:
			lost = true
		case claim && (gone || free && !lost):
			mine, err := c.take(number, key, deadline)
			if mine || err != nil {
				return number + 1, lost, err
			}
		case err != nil:
			return 0, lost, err
		case string(holder) == string(key):
			return number + 1, lost, nil
		}
	}
	return 0, lost, kv.ErrNotFound
}

// take claims a place that was not claimed when it was read. It returns true if the place is now
// the key's. If the place has data, its claim was lost or was made meanwhile, and take claims the
// place for the key in that data. If the data is no entry, another program has written it, and take
// does not claim the place.
func (c *Client) take(number uint64, key []byte, deadline clock.Time) (mine bool, err error) {
	holder, _, err := c.read(number+1, filled, deadline)
	switch {
	case errors.Is(err, kv.ErrNotFound), errors.Is(err, kv.ErrLost):
		holder = key
	case err != nil:
		return false, err
	}
	c.entry = appendEntry(c.entry[:0], claimed, holder, nil)
	err = c.insert(number, deadline)
	if errors.Is(err, kv.ErrExists) {
		holder, _, err = c.read(number, claimed, deadline)
	}
	return err == nil && string(holder) == string(key), err
}

// read reads an entry of the given kind. The slices are valid until the next read.
func (c *Client) read(number uint64, kind byte, deadline clock.Time) (key, value []byte, err error) {
	c.got, err = c.s.Get(number, c.got, deadline)
	if err = c.count(err); err != nil {
		return nil, nil, err
	}
	return parse(c.got, kind)
}

// put and insert write c.entry.
func (c *Client) put(number uint64, deadline clock.Time) error {
	err := c.s.Put(number, c.entry, deadline)
	return c.count(err)
}

func (c *Client) insert(number uint64, deadline clock.Time) error {
	err := c.s.Insert(number, c.entry, deadline)
	return c.count(err)
}

// count adds the cost of the store's last operation to that of the Client's operation, and returns
// err.
func (c *Client) count(err error) error {
	c.cost.Add(c.s.Last())
	return err
}

// noEffect adds kv.ErrNoEffect to an error that came before the write of the data. Until then the
// key has at most claimed a number, which does not change its value.
func noEffect(err error) error {
	if errors.Is(err, kv.ErrNotFound) {
		return err
	}
	return errors.Join(err, kv.ErrNoEffect)
}
