package passive

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// Places in a superblock, in bytes. At SuperWord is a word that the store may use. It is 0 in a
// store that was just made. The Numbers follow it.
const (
	SuperLen     = 64
	SuperWord    = 32
	superServers = 16 // the number of servers, in 4 bytes; superAt follows
	superClients = 24 // a counter of the clients; only the counter on the first server is used
	superNumbers = 40
)

// superAt is the offset, in a superblock, of 4 bytes that say to which server the superblock
// belongs: the index of that server in the list of servers, from 0 on.
const superAt = superServers + 4

// Numbers are the sizes of a store. The superblock has them, so that a client that opens the store
// knows them.
type Numbers [3]int

// Super is what the superblocks of all servers have in common. Generation is a random number that
// identifies the store. Servers is the number of servers. Numbers are the sizes that the kind of
// store defines.
type Super struct {
	Generation uint64
	Servers    int
	Numbers    Numbers
}

// Form describes the superblock. Each server's part of a store begins with one.
type Form struct {
	// Kind names the store and the version of its layout. Memory with a superblock of another kind
	// is not a part of this store.
	Kind string
	// Buffer is the most bytes that one operation of a client moves. It is at least SuperLen.
	Buffer int
	// Size returns the length of each server's part, in bytes, in a store with these numbers. It is
	// 0 if no store can have these numbers.
	Size func(n Numbers) uint64
}

// ErrPart says that only some servers have their parts of the store. ErrAbsent says that the memory
// was never formatted, or was lost. ErrForeign says that the memory holds other data. ErrServers
// says that the store was made on another list of servers, or on these in another order. ErrHeld
// says that some memory is not empty although no store was found in it; see Blank.
var (
	ErrPart    = errors.New("its part of the table is missing, other servers still have theirs; start the store with --fresh to make an empty table on all of them")
	ErrAbsent  = errors.New("no table in the memory: it is not formatted, or was lost")
	ErrForeign = errors.New("the memory holds other data, not a table of this store; start the store with --fresh to overwrite it")
	ErrServers = errors.New("the table was made on another list of memory servers, or in another order; start the store with --fresh to make a new one")
	ErrHeld    = errors.New("the memory holds other data, or a part of a store whose other parts were lost; start the store with --fresh to overwrite it")
)

// magic returns the first word of a superblock, a hash of the Kind.
func (f Form) magic() uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(f.Kind)) // never fails
	return h.Sum64()
}

// Encode returns the bytes of a superblock.
func (f Form) Encode(s Super) []byte {
	b := make([]byte, SuperLen)
	put := func(at int, v uint64) { binary.LittleEndian.PutUint64(b[at:], v) }
	put(0, f.magic())
	put(8, s.Generation)
	put(superServers, uint64(s.Servers))
	for i, n := range s.Numbers {
		put(superNumbers+8*i, uint64(n))
	}
	return b
}

// Parse reads a superblock that Encode has made. size is the length of the server's memory in
// bytes.
func (f Form) Parse(b []byte, size int) (s Super, err error) {
	get := func(at int) uint64 { return binary.LittleEndian.Uint64(b[at:]) }
	s = Super{Generation: get(8), Servers: int(uint32(get(superServers)))}
	for i := range s.Numbers {
		s.Numbers[i] = int(get(superNumbers + 8*i))
	}
	switch n := f.Size(s.Numbers); {
	case get(0) == 0:
		return s, ErrAbsent
	case get(0) != f.magic(), n == 0, n > uint64(size):
		return s, ErrForeign
	}
	return s, nil
}

// Format makes an empty store, whatever the memory of the servers holds.
//
// First, on each server, it removes the superblock of the store that was there, and then ends the
// connections of that store's clients. So none of their requests arrives later. The clients of the
// new store get owner numbers that no client of the old store had.
//
// plan chooses the numbers of the new store; each server shares at least `memory` bytes. Format
// clears each server's part up to the offset `zeroed`. Two calls must not make a store in the same
// memory at the same time: the later call would clear what clients of the first store have written.
func (f Form) Format(cfg Config, plan func(memory int) (n Numbers, zeroed uint64, err error), deadline clock.Time) (err error) {
	c, err := Open(cfg, f.Buffer)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	last, memory, zeros := uint32(0), 0, make([]byte, f.Buffer)
	for i := range c.Servers() {
		if err := c.Write(i, 0, zeros[:SuperLen], deadline); err != nil {
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
	s := Super{Servers: c.Servers()}
	for s.Generation == 0 {
		s.Generation = c.Runtime().Rand().Uint64()
	}
	var end uint64
	if s.Numbers, end, err = plan(memory); err != nil {
		return err
	}
	for i := range c.Servers() {
		for at := uint64(SuperLen); at < end; at += uint64(f.Buffer) {
			if err := c.Write(i, at, zeros[:min(uint64(f.Buffer), end-at)], deadline); err != nil {
				return err
			}
		}
	}
	super := f.Encode(s)
	binary.LittleEndian.PutUint64(super[superClients:], uint64(last))
	// this is the last step: without superblocks no client opens the store
	for i := range c.Servers() {
		binary.LittleEndian.PutUint32(super[superAt:], uint32(i))
		if err := c.Write(i, 0, super, deadline); err != nil {
			return err
		}
	}
	return nil
}

// Blank returns ErrHeld if the memory of one of the servers does not begin with zeros: then it has
// the superblock of another store, or of a part of a store whose other parts were lost. It is
// called before a store is made, unless the user wants a new one whatever the memory holds.
func Blank(cfg Config, deadline clock.Time) (err error) {
	c, err := Open(cfg, SuperLen)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var b [8]byte
	for i := range c.Servers() {
		if err := c.Read(i, 0, b[:], deadline); err != nil {
			return err
		}
		if binary.LittleEndian.Uint64(b[:]) != 0 {
			return fmt.Errorf("memory server %d: %w", i, ErrHeld)
		}
	}
	return nil
}

// same reports whether the superblock b, which Parse has read into `found`, is that of server i of
// the store s.
func same(b []byte, found, s Super, i int) bool {
	return found == s && binary.LittleEndian.Uint32(b[superAt:]) == uint32(i)
}

// Join connects a client. First it compares the superblocks of all servers. If none of them has
// one, the error is ErrAbsent, and a caller may make a store. If a server has none while others
// have theirs, the error is ErrPart. If the servers are not those of the store in the order in
// which it was made, the error is ErrServers. Then the client gets a number that no other client
// has. Other clients can end the client's connections by this number (Format, memservice.Fence). On
// each later connection the client checks the superblock again. If it has changed, the error is
// kv.ErrLost.
func (f Form) Join(cfg Config, deadline clock.Time) (_ *Conn, s Super, err error) {
	c, err := Open(cfg, f.Buffer)
	if err != nil {
		return nil, s, err
	}
	defer kv.CloseAfter(&err, c)
	b := make([]byte, SuperLen)
	absent := []int(nil)
	for i := range c.Servers() {
		if err := c.Read(i, 0, b, deadline); err != nil {
			return nil, s, err
		}
		found, err := f.Parse(b, c.Len(i))
		if errors.Is(err, ErrAbsent) {
			absent = append(absent, i)
			continue
		}
		if i == len(absent) { // no earlier server has a part
			s = found
		}
		if err == nil && (!same(b, found, s, i) || s.Servers != c.Servers()) {
			err = ErrServers
		}
		if err != nil {
			return nil, s, fmt.Errorf("memory server %d: %w", i, err)
		}
	}
	switch n := len(absent); {
	case n == c.Servers():
		return nil, s, ErrAbsent
	case n > 0:
		return nil, s, fmt.Errorf("memory server %d: %w", absent[0], ErrPart)
	}
	f.Expect(c, s, nil)
	if err := f.Number(c, deadline); err != nil {
		return nil, s, err
	}
	for i := range c.Servers() {
		if err := c.Read(i, 0, b, deadline); err != nil {
			return nil, s, err
		}
	}
	return c, s, nil
}

// Expect makes c check the memory of a server on each new connection from now on: its superblock
// must be that of s, and word, if it is not nil, must return nil for the 8 bytes at SuperWord. An
// operation that needs a connection whose check fails ends with kv.ErrLost.
func (f Form) Expect(c *Conn, s Super, word func(uint64) error) {
	c.Expect(SuperLen, func(server int, first []byte) error {
		found, err := f.Parse(first, c.Len(server))
		if err == nil && !same(first, found, s, server) {
			err = ErrServers
		}
		if err == nil && word != nil {
			err = word(binary.LittleEndian.Uint64(first[SuperWord:]))
		}
		if err != nil {
			return fmt.Errorf("%w: memory server %d: %w", kv.ErrLost, server, err)
		}
		return nil
	})
}

// Number gives a new owner number to a client that has joined. To do so it ends all connections of
// the client.
func (f Form) Number(c *Conn, deadline clock.Time) error {
	if err := c.Become(0); err != nil {
		return err
	}
	number, err := c.Count(0, superClients, deadline)
	if err == nil && number >= 1<<32-1 {
		err = kv.ErrFull
	}
	return errors.Join(err, c.Become(uint32(number)+1))
}
