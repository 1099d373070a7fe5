package hopscotch

import (
	"fmt"
	"math/bits"

	"github.com/rdmalab/rdmalab/redn"
)

// Form says which program reads the buckets.
type Form uint8

const (
	Pointers Form = iota // redn.AppendBucket, for redn.Lookup
	Slots                // redn.AppendSlot, for redn.LookupServer, with immediate data redn.Hit
)

// Shape says how a table is laid out: Len buckets of BucketLen bytes, and behind them the places of
// values. Client and server must have the same.
type Shape struct {
	Len           int  // number of buckets
	Hashes        int  // hashes of a key
	Neighbourhood int  // buckets from each home bucket on in which a key may be
	Values        int  // number of places for values; 0 means Len
	Value         int  // bytes of each value
	Form          Form // of the buckets
}

// maxLen is the largest number of buckets, so that their numbers fit into 32 bits.
const maxLen = 1 << 30

// Default returns the shape of a table for the given number of entries: two hashes as in the paper, a
// neighbourhood of 2, and a load of 0.75.
func Default(entries, value int) Shape {
	return Shape{Len: entries*4/3 + 4, Hashes: 2, Neighbourhood: 2, Values: entries, Value: value}
}

// Validate returns an error if a number is out of its range.
func (s Shape) Validate() error {
	switch {
	case s.Hashes < 1 || s.Neighbourhood < 1:
		return fmt.Errorf("hopscotch: %d hashes, %d buckets of a neighbourhood: each is at least 1", s.Hashes, s.Neighbourhood)
	case s.Len < s.Neighbourhood || s.Len > maxLen:
		return fmt.Errorf("hopscotch: %d buckets; choose %d to %d", s.Len, s.Neighbourhood, maxLen)
	case s.Values < 0 || s.Values > maxLen:
		return fmt.Errorf("hopscotch: %d places of values; choose 0 to %d", s.Values, maxLen)
	case s.Value < 1:
		return fmt.Errorf("hopscotch: values of %d bytes; choose at least 1", s.Value)
	case s.Form > Slots:
		return fmt.Errorf("hopscotch: form %d is not known", s.Form)
	}
	return nil
}

// Probes returns the number of buckets in which a key may be. A program needs at most redn.MaxProbes.
func (s Shape) Probes() int { return s.Hashes * s.Neighbourhood }

// BucketLen returns the distance of buckets in bytes: a power of two, so that no bucket is in
// two lines of 64 bytes.
func (s Shape) BucketLen() int {
	if s.Form == Slots {
		return 32
	}
	return 16
}

func (s Shape) values() int {
	if s.Values == 0 {
		return s.Len
	}
	return s.Values
}

// ValueAt returns the offset of place i of the values.
func (s Shape) ValueAt(i int) int { return (s.Len*s.BucketLen()+63)&^63 + i*s.Value }

// Size returns the length of the table's memory in bytes.
func (s Shape) Size() int { return s.ValueAt(s.values()) }

func mix(x uint64) uint64 {
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// Home returns the home bucket of a key by hash i.
func (s Shape) Home(key redn.Operand, i int) int {
	home, _ := bits.Mul64(mix(uint64(key)+uint64(i+1)*0x9e3779b97f4a7c15), uint64(s.Len-s.Neighbourhood+1))
	return int(home)
}

// Buckets appends to list the buckets in which a key may be, in the order in which lookups probe them.
// If the neighbourhoods of a key overlap, a bucket is there twice.
func (s Shape) Buckets(list []int, key redn.Operand) []int {
	for i := range s.Hashes {
		home := s.Home(key, i)
		for j := range s.Neighbourhood {
			list = append(list, home+j)
		}
	}
	return list
}

// AppendRequest appends a client's request: a probe for each bucket in which key may be. base is the
// address of the table.
func (s Shape) AppendRequest(b []byte, key redn.Operand, base uint64) []byte {
	for i := range s.Hashes {
		home := s.Home(key, i)
		for j := range s.Neighbourhood {
			b = redn.AppendProbe(b, key, base+uint64((home+j)*s.BucketLen()))
		}
	}
	return b
}
