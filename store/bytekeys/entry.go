package bytekeys

import (
	"crypto/sha256"
	"encoding/binary"
	"errors"
)

// An entry is a value of the store:
//
//	kind (1 byte) | length of the key (uvarint) | length of the value (uvarint) | key | value
//
// The kind is claimed or filled. An entry contains the length of the value, too, because some
// stores pad values to a fixed length.
const (
	claimed byte = 0xc1
	filled  byte = 0xd1
)

// maxHeader is the greatest length of a header in bytes. No store has values longer than 2^31
// bytes.
const maxHeader = 1 + 2*binary.MaxVarintLen32

// ErrForeign means that a number which belongs to a byte-string key has a value that this package
// has not written.
var ErrForeign = errors.New("the place of the key has a value of a program that uses numbers as keys; use one kind of keys in a store")

// entryLen returns the length of the entry for a key and a value with these lengths.
func entryLen(key, value int) int {
	var b [maxHeader]byte
	return len(header(b[:0], filled, key, value)) + key + value
}

func header(dst []byte, kind byte, key, value int) []byte {
	dst = append(dst, kind)
	dst = binary.AppendUvarint(dst, uint64(key))
	return binary.AppendUvarint(dst, uint64(value))
}

func appendEntry(dst []byte, kind byte, key, value []byte) []byte {
	dst = header(dst, kind, len(key), len(value))
	dst = append(dst, key...)
	return append(dst, value...)
}

// parse returns the key and the value of an entry of the given kind. It returns ErrForeign if b is
// no such entry.
func parse(b []byte, kind byte) (key, value []byte, err error) {
	if len(b) == 0 || b[0] != kind {
		return nil, nil, ErrForeign
	}
	b = b[1:]
	var lens [2]int
	for i := range lens {
		n, took := binary.Uvarint(b)
		if took <= 0 || n > uint64(len(b)) {
			return nil, nil, ErrForeign
		}
		b, lens[i] = b[took:], int(n)
	}
	if lens[0]+lens[1] > len(b) {
		return nil, nil, ErrForeign
	}
	return b[:lens[0]], b[lens[0] : lens[0]+lens[1]], nil
}

// Hash chooses the first place of a key. All clients of a store use the same function.
func Hash(key []byte) uint64 {
	sum := sha256.Sum256(key)
	return binary.LittleEndian.Uint64(sum[:])
}

const (
	// maxPlaces is how many keys may have the same hash. stride is the distance between two places
	// of a hash; its value is arbitrary.
	maxPlaces = 16
	// places is the number of places of all keys. Each place has two numbers: one for the claim and
	// the next one for the data. The place with the two greatest numbers is left out, because the
	// store template cannot insert the key 2^64-1.
	places = 1<<63 - 1
	stride = 0x2545f4914f6cdd1d
)

// claimOf returns the number of the claim at place i of a hash. The next number has the data.
func claimOf(hash uint64, i int) uint64 { return (hash + uint64(i)*stride) % places * 2 }
