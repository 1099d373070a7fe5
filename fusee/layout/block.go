package layout

// A block begins with its bitmap, which has a bit for each of the block's units. A client sets a
// bit to free the object that begins in that unit. The units of the bitmap itself have no objects.
// All objects of a block have the same length.

// BlockUse is a block's word in the block table. It names the client that owns the block. 0 means
// that the block was never used. A block that was used and has no client can be taken over by any
// client.
//
//	bits 0 to 31   client | bits 32 to 39  length of the block's objects in units; 0: any
//	bits 40 to 59  version | bit 60  used | bits 61 to 63  room
//
// No object of the block has a greater version than the word: a client raises the version in the
// word before it gives an object this version. The version never decreases, also when the block
// changes its owner or the length of its objects, and no version comes after MaxVersion. So no slot
// ever has the same value twice. room is how many objects were free when the last owner left the
// block; 7 means 7 or more.
type BlockUse uint64

const (
	useUnits   = 32
	useVersion = 40
	useUsed    = 1 << 60
	useRoom    = 61
	maxRoom    = 1<<3 - 1
)

// UseBy returns the word for a fresh block of a client, with objects of the given length. The
// client's number is not 0.
func UseBy(client uint32, units int) BlockUse {
	return BlockUse(client) | BlockUse(byte(units))<<useUnits
}

// UseLeft returns the word for a block that its client leaves to other clients. units is 0 if no
// object of the block is in use: then the next owner may choose any length of objects.
func UseLeft(units int, version uint32, room int) BlockUse {
	return BlockUse(byte(units))<<useUnits | BlockUse(version&MaxVersion)<<useVersion | useUsed | BlockUse(min(room, maxRoom))<<useRoom
}

// By returns the word for the block after a client has taken it over.
func (u BlockUse) By(client uint32) BlockUse { return u>>32<<32 | BlockUse(client) }

// For returns the word for the block when the length of its objects is `units` units.
func (u BlockUse) For(units int) BlockUse {
	return u&^(0xff<<useUnits) | BlockUse(byte(units))<<useUnits
}

// Ahead returns the word with its version raised by `versions`, but not above MaxVersion. When the
// client has written that word, it may give the block's objects all versions up to the new one.
func (u BlockUse) Ahead(versions uint32) BlockUse {
	version := min(u.Version()+versions, MaxVersion)
	return u&^(MaxVersion<<useVersion) | BlockUse(version)<<useVersion
}

// Left reports whether the block was used and has no client now.
func (u BlockUse) Left() bool { return u != 0 && u.Client() == 0 }

// Copy returns the copy of the block's word u for the other servers that have replicas of the
// block's objects. The copy has the length of the objects and the version, but no client, like the
// word of a block that its client has left.
func (u BlockUse) Copy() BlockUse {
	if u == 0 {
		return 0
	}
	return UseLeft(u.Units(), u.Version(), maxRoom)
}

// Covers reports whether u, a copy of a block's word, allows objects of the given length and
// version: u has the same length, and no smaller version.
func (u BlockUse) Covers(units int, version uint32) bool {
	return u != 0 && u.Units() == units && u.Version() >= version
}

// Client returns the number of the client that owns the block, or 0.
func (u BlockUse) Client() uint32 { return uint32(u) }

// Units returns the length of the block's objects in units, or 0 if no length is chosen yet.
func (u BlockUse) Units() int { return int(byte(u >> useUnits)) }

// Version returns the greatest version that an object of the block may have.
func (u BlockUse) Version() uint32 { return uint32(u>>useVersion) & MaxVersion }

// Spent reports whether the block has no further version, so that none of its objects can be used
// again.
func (u BlockUse) Spent() bool { return u.Version() == MaxVersion }

// Room returns how many objects were free when the last client left the block; 7 means 7 or more.
func (u BlockUse) Room() int { return int(u >> useRoom) }

// bitmapUnits returns how many units at the beginning of a block the block's bitmap takes.
func (s *Shape) bitmapUnits() int { return (s.BlockUnits/8 + Unit - 1) / Unit }

// BitmapLen returns the length of the bitmap of a block in bytes, a multiple of 8.
func (s *Shape) BitmapLen() int { return s.BlockUnits / 8 }

// Objects returns how many objects of the given length a block has room for.
func (s *Shape) Objects(units int) int {
	if units < 1 {
		return 0
	}
	return (s.BlockUnits - s.bitmapUnits()) / units
}

// PlaceOf returns the place of object i of a block, whose objects have the given length.
func (s *Shape) PlaceOf(block, i, units int) uint64 {
	return uint64(block)*uint64(s.BlockUnits) + uint64(s.bitmapUnits()+i*units)
}

func (s *Shape) BlockOf(place uint64) int { return int(place / uint64(s.BlockUnits)) }

// IndexOf returns the index of an object in its block, whose objects have the given length, or -1
// if no object begins at that place.
func (s *Shape) IndexOf(place uint64, units int) int {
	at := int(place%uint64(s.BlockUnits)) - s.bitmapUnits()
	if units < 1 || at < 0 || at%units != 0 || at/units >= s.Objects(units) {
		return -1
	}
	return at / units
}

// FreeBit returns how to free the object at a place: word is the offset in the area of the word
// with its bit, and add is what a FETCH_ADD must add to this word. To add a bit that is set already
// would change other bits. So a client frees an object only once after each use.
func (s *Shape) FreeBit(place uint64) (word, add uint64) {
	bit := place % uint64(s.BlockUnits)
	word = (place-bit)*Unit + bit/64*8
	if s.Format == Published {
		// The public code shifts a number of 32 bits. Processors take the shift modulo 32, and bit
		// 31 becomes the sign of the number that is added.
		return word, uint64(int64(int32(1) << (bit % 32)))
	}
	return word, 1 << (bit % 64)
}
