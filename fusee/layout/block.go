package layout

// A block begins with its bitmap: a bit for each of its units. A client sets the bit to free the
// object that begins in this unit. The units that the bitmap needs are not used for objects; all
// objects of a block have the same length.

// BlockUse is a word of the block table: the client that owns the block. 0: the block is free, and
// was never used. A block that was used has no client, and waits for another one.
//
//	bits 0 to 31   client | bits 32 to 39  length of the block's objects in units; 0: any
//	bits 40 to 59  version | bit 60  used | bits 61 to 63  room
//
// No object of the block has had a greater version than that, nor gets one before the word has it:
// a client raises the version in advance. It never goes back, also when the block changes its owner
// or the length of its objects, and nothing follows MaxVersion: so no slot has a value twice. The
// room is how many objects were free when the last owner left the block, at most 7.
type BlockUse uint64

const (
	useUnits   = 32
	useVersion = 40
	useUsed    = 1 << 60
	useRoom    = 61
	maxRoom    = 1<<3 - 1
)

// UseBy makes the word for a block of a client, whose number is not 0, with objects of the given
// length. The block is fresh: no other client has had it.
func UseBy(client uint32, units int) BlockUse {
	return BlockUse(client) | BlockUse(byte(units))<<useUnits
}

// UseLeft makes the word for a block that its client leaves. A block that has no object in use has
// no length of objects: units is 0.
func UseLeft(units int, version uint32, room int) BlockUse {
	return BlockUse(byte(units))<<useUnits | BlockUse(version&MaxVersion)<<useVersion | useUsed | BlockUse(min(room, maxRoom))<<useRoom
}

// By is the word for the block once a client has taken it over.
func (u BlockUse) By(client uint32) BlockUse { return u>>32<<32 | BlockUse(client) }

// For is the word for the block once it has objects of another length.
func (u BlockUse) For(units int) BlockUse {
	return u&^(0xff<<useUnits) | BlockUse(byte(units))<<useUnits
}

// Ahead returns the word of the block with which its client may give its objects that number of
// versions more.
func (u BlockUse) Ahead(versions uint32) BlockUse {
	version := min(u.Version()+versions, MaxVersion)
	return u&^(MaxVersion<<useVersion) | BlockUse(version)<<useVersion
}

// Left reports whether the block was used and has no client.
func (u BlockUse) Left() bool { return u != 0 && u.Client() == 0 }

// Client owns the block; 0: no client does.
func (u BlockUse) Client() uint32 { return uint32(u) }

// Units is the length of the block's objects; 0: it has none.
func (u BlockUse) Units() int { return int(byte(u >> useUnits)) }

// Version is the greatest version that an object of the block may have.
func (u BlockUse) Version() uint32 { return uint32(u>>useVersion) & MaxVersion }

// Spent reports whether no object of the block can be used any more: there is no further version.
func (u BlockUse) Spent() bool { return u.Version() == MaxVersion }

// Room is how many objects were free, at most 7, when the last client left the block.
func (u BlockUse) Room() int { return int(u >> useRoom) }

// bitmapUnits is how many units the bitmap of a block takes.
func (s *Shape) bitmapUnits() int { return (s.BlockUnits/8 + Unit - 1) / Unit }

// BitmapLen is the length of the bitmap of a block in bytes, a multiple of 8.
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

// FreeBit returns how the object at a place is freed: word is the offset in the area of the word
// with its bit, add the number that a FETCH_ADD adds to this word. A client that has freed an
// object does not free it again before its owner has used it again.
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
