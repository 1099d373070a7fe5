package layout

// A block begins with its bitmap: a bit for each of its units, which is set to free the object that
// begins there. The units that the bitmap needs are not used for objects; all objects of a block
// have the same length.

// BlockUse is a word of the block table: the client that owns the block. 0: the block is free.
//
//	bits 0 to 31  client | bits 32 to 39  length of the block's objects in units
type BlockUse uint64

// UseBy makes the word for a block of a client, whose number is not 0, with objects of the given
// length.
func UseBy(client uint32, units int) BlockUse {
	return BlockUse(client) | BlockUse(byte(units))<<32
}

// Client owns the block; 0: no client does.
func (u BlockUse) Client() uint32 { return uint32(u) }

// Units is the length of the block's objects.
func (u BlockUse) Units() int { return int(byte(u >> 32)) }

// bitmapUnits is how many units the bitmap of a block takes.
func (s *Shape) bitmapUnits() int { return (s.BlockUnits/8 + Unit - 1) / Unit }

// BitmapLen is the length of a block's bitmap in bytes, a multiple of 8.
func (s *Shape) BitmapLen() int { return s.BlockUnits / 8 }

// Objects is how many objects of the given length a block has.
func (s *Shape) Objects(units int) int {
	if units < 1 {
		return 0
	}
	return (s.BlockUnits - s.bitmapUnits()) / units
}

// PlaceOf is the place of object i of a block, whose objects have the given length.
func (s *Shape) PlaceOf(block, i, units int) uint64 {
	return uint64(block)*uint64(s.BlockUnits) + uint64(s.bitmapUnits()+i*units)
}

// BlockOf is the block in which an object lies.
func (s *Shape) BlockOf(place uint64) int { return int(place / uint64(s.BlockUnits)) }

// IndexOf is the number of an object in its block, whose objects have the given length; -1 if no
// object begins there.
func (s *Shape) IndexOf(place uint64, units int) int {
	at := int(place%uint64(s.BlockUnits)) - s.bitmapUnits()
	if units < 1 || at < 0 || at%units != 0 || at/units >= s.Objects(units) {
		return -1
	}
	return at / units
}

// FreeBit returns where the bit lies that frees the object at a place: the offset of its word in the
// area, and the number that a FETCH_ADD adds. A client that has freed an object does not free it
// again before its owner has used it again.
func (s *Shape) FreeBit(place uint64) (word, add uint64) {
	bit := place % uint64(s.BlockUnits)
	word = (place-bit)*Unit + bit/64*8
	if s.Format == Published {
		// The public code shifts a number of 32 bits: processors take the shift modulo 32, and bit 31
		// becomes the sign of the number that is added.
		return word, uint64(int64(int32(1) << (bit % 32)))
	}
	return word, 1 << (bit % 64)
}
