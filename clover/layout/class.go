package layout

import "fmt"

// Limits of slab classes. An entry is the memory of one node. An entry of class i has 128·2^i
// bytes.
const (
	MinSlab = 128
	MaxSlab = 32768
	Classes = 9
)

// Class is the index of a slab class.
type Class uint8

// Size returns the length of an entry in bytes.
func (c Class) Size() int { return MinSlab << c }

// ClassOf returns the smallest class whose entries have room for n bytes. ok is false if there is
// none.
func ClassOf(n int) (c Class, ok bool) {
	for c = 0; c < Classes; c++ {
		if n <= c.Size() {
			return c, true
		}
	}
	return 0, false
}

// String returns the size of an entry as text, such as "128 B".
func (c Class) String() string { return fmt.Sprintf("%d B", c.Size()) }

// Counts is the number of entries of each class on one memory server.
type Counts [Classes]int

func (c Counts) Total() int {
	n := 0
	for _, k := range c {
		n += k
	}
	return n
}

// Bytes returns the size of all entries in bytes.
func (c Counts) Bytes() int {
	n := 0
	for i, k := range c {
		n += k * Class(i).Size()
	}
	return n
}
