package layout

import "testing"

// A key remains in its bucket while the header changes if the key has a 0 in each bit whose split may have
// moved keys meanwhile.
func TestRemain(t *testing.T) {
	key := func(bits uint32) Hash { // a key whose prefix ends with these four bits
		for k := uint64(0); ; k++ {
			if h := HashOf(k); h.Prefix()&15 == bits {
				return h
			}
		}
	}
	open := func(depth int) Header { return Header{Depth: depth, Prefix: 1} }
	moving := func(depth int) Header { return Header{Depth: depth, Prefix: 1, Moving: true} }
	for _, c := range []struct {
		bits     uint32
		was, now Header
		want     bool
	}{
		{0b0001, open(1), moving(2), true},
		{0b0011, open(1), moving(2), false},
		{0b0011, open(1), open(2), false},
		{0b0011, moving(2), open(2), false}, // it may have been moved after the header was read
		{0b0101, moving(2), open(2), true},
		{0b0101, open(2), moving(3), false},
		{0b0101, open(1), open(3), false},
		{0b1001, open(1), open(3), true},
		{0b1001, moving(2), moving(4), false},
		{0b0001, open(1), Header{Depth: 2, Prefix: 3}, false}, // the header of another subtable
	} {
		if got := c.was.Remain(c.now, key(c.bits)); got != c.want {
			t.Errorf("prefix %04b, header from %+v to %+v: %v", c.bits, c.was, c.now, got)
		}
	}
}
