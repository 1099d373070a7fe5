// Package superblock lists the words with which the memory of each store begins, so that a store
// recognizes the data of another one without knowing it. A store of this repository begins its
// memory with its own word; a store that is made with package store/passive begins it with a hash.
package superblock

import "encoding/binary"

// A Word is the first word of a superblock, in little endian. Its last characters are the version of
// the store's layout.
type Word = uint64

// The words of the stores.
const (
	Clover  Word = 0x3330_5256_4c43_4d52 // "RMCLVR03"
	Sherman Word = 0x01_6e616d72656873   // "sherman", 1
	FUSEE   Word = 0x3530_4545_5355_4652 // "RFUSEE05"
)

// stores has a row for each word: what the memory holds, and the bits of the word that another
// version of the layout may change.
var stores = []struct {
	word    Word
	holds   string
	version Word
}{
	{Clover, "a Clover store", CloverVersion},
	{Sherman, "a Sherman tree", 0xff << 56},
	{FUSEE, "a FUSEE store", 0xffff << 48},
}

// CloverVersion are the bits of Clover's word that another version changes.
const CloverVersion Word = 0xffff << 48

// Foreign says what memory with the first bytes b holds: "a Clover store", for example. It returns ""
// if b does not begin with the word of a listed store, in any version, or begins with the word own.
func Foreign(b []byte, own Word) (holds string) {
	if len(b) < 8 {
		return ""
	}
	first := binary.LittleEndian.Uint64(b)
	for _, s := range stores {
		if s.word != own && first&^s.version == s.word&^s.version {
			return s.holds
		}
	}
	return ""
}
