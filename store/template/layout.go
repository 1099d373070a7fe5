package template

import (
	"fmt"

	"github.com/rdmalab/rdmalab/store/passive"
)

// Lengths in a server's memory, in bytes, and limits of a table. The 24 bytes before a value are
// those of passive.Seal with two words.
const (
	slotLen      = 16
	bufferLen    = 32 << 10
	maxValue     = bufferLen - 24
	defaultValue = 256 - 24
	maxObjects   = 1<<24 - 1
)

// form is the superblock. By its Kind a store recognizes its own memory. A copy of this package
// must have another name in Kind. The number in Kind counts the versions of the layout.
var form = passive.Form{
	Kind: "template 2", Buffer: bufferLen,
	Size: func(n passive.Numbers) uint64 { return shapeOf(n).size() },
}

// Shape has the number of slots and objects of each server, and the length of the longest value in
// bytes.
type Shape struct {
	Slots   int `json:"slots"`
	Objects int `json:"objects"`
	Value   int `json:"value"`
}

func (s Shape) numbers() passive.Numbers { return passive.Numbers{s.Slots, s.Objects, s.Value} }
func shapeOf(n passive.Numbers) Shape    { return Shape{n[0], n[1], n[2]} }

// String returns the text that follows "each with" in the output of start.
func (s Shape) String() string {
	return fmt.Sprintf("%d slots and %d objects for values of up to %d bytes", s.Slots, s.Objects, s.Value)
}

func (s Shape) keys() passive.Keys {
	return passive.Keys{At: passive.SuperLen, SlotLen: slotLen, Slots: s.Slots}
}
func (s Shape) wordAt(i uint64) uint64 { return passive.SuperLen + i*slotLen + 8 }
func (s Shape) objectLen() int         { return passive.SealLen(2) + (s.Value+7)&^7 }
func (s Shape) objectAt(n uint32) uint64 { // n is 1 or more
	return passive.SuperLen + uint64(s.Slots)*slotLen + uint64(n-1)*uint64(s.objectLen())
}

// size returns the length of a server's part, in bytes. It is 0 if no table can have this shape.
func (s Shape) size() uint64 {
	if s.Value < 0 || s.Value > maxValue || s.Slots < 1 || s.Slots > maxObjects || s.Objects < 1 || s.Objects > maxObjects {
		return 0
	}
	return s.objectAt(uint32(s.Objects) + 1)
}

// word is the second half of a slot: version 39 bits | deleted 1 | object 24. It is 0 if the key
// never had a value.
type word uint64

const deleted word = 1 << 24

func (w word) version() uint64 { return uint64(w) >> 25 }
func (w word) object() uint32  { return uint32(w) & maxObjects }
func (w word) alive() bool     { return w != 0 && w&deleted == 0 }

// next returns the word that replaces w when the key gets this object.
func (w word) next(object uint32) word {
	return word(w.version()+1)<<25 | word(object)
}
