package memcached

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/store/kv"
)

// kindItem is the first byte of an item.
const kindItem byte = 0xe1

// An item is, with lengths in bytes: kind 1, length of the key 1, flags 4, key, data.
const itemHead = 6

// Number returns the number under which the table stores the item with a key: a hash of the key.
func Number(key []byte) uint64 {
	sum := sha256.Sum256(key)
	return binary.LittleEndian.Uint64(sum[:])
}

// appendItem appends an item. The key has at most 250 bytes.
func appendItem(b, key []byte, flags uint32, data []byte) []byte {
	b = append(b, kindItem, byte(len(key)))
	b = binary.BigEndian.AppendUint32(b, flags)
	return append(append(b, key...), data...)
}

// parseItem returns the parts of an item; ok is false if b is no item.
func parseItem(b []byte) (key []byte, flags uint32, data []byte, ok bool) {
	if len(b) < itemHead || b[0] != kindItem || int(b[1]) > len(b)-itemHead {
		return nil, 0, nil, false
	}
	n := itemHead + int(b[1])
	return b[itemHead:n], binary.BigEndian.Uint32(b[2:]), b[n:], true
}

// Get reads an item through a client of the table. data is in dst[:0], which grows if necessary.
// The error is kv.ErrNotFound if there is no item with the key; other errors are those of
// kv.Store.Get.
func Get(s kv.Store, key, dst []byte, deadline clock.Time) (flags uint32, data []byte, err error) {
	b, err := s.Get(Number(key), dst, deadline)
	if err != nil {
		return 0, b, err
	}
	found, flags, data, ok := parseItem(b)
	if !ok || string(found) != string(key) {
		return 0, b[:0], kv.ErrNotFound
	}
	return flags, b[:copy(b, data)], nil
}

// Set stores an item in a table, as the command set does.
func Set(t Table, key []byte, flags uint32, data []byte) error {
	x := executor{t: t}
	return x.update(key, func(bool, uint32, []byte, uint64) (uint32, []byte, Change) { return flags, data, Store })
}
