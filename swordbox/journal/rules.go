package journal

import (
	"fmt"
	"hash/crc32"
)

// The rules are stored as a text. There are two banks for it. The bank with a correct checksum and
// the higher serial number is valid. So a crash while one bank is written leaves the other one
// valid.
//
//	 0         4        8     12      16
//	+---------+--------+-----+------+----------
//	| serial  | length | sum | 0    | text
//	+---------+--------+-----+------+----------
const (
	bankLength = 4
	bankSum    = 8
)

func (r *Journal) bankOf(i int) []byte {
	at := banksAt + i*bankLen
	return r.b[at : at+bankLen]
}

// text returns the text of bank i. The bool is false if the bank has no text or its checksum is
// wrong.
func (r *Journal) text(i int) ([]byte, bool) {
	b := r.bankOf(i)
	n := le.Uint32(b[bankLength:])
	if n > MaxRules || le.Uint32(b) == 0 {
		return nil, false
	}
	text := b[bankHead : bankHead+n]
	return text, le.Uint32(b[bankSum:]) == bankChecksum(b, text)
}

func bankChecksum(b, text []byte) uint32 {
	return crc32.Update(crc32.ChecksumIEEE(b[:bankSum]), crc32.IEEETable, text)
}

// openRules finds the bank that holds the rules.
func (r *Journal) openRules() {
	for i := range 2 {
		if _, ok := r.text(i); ok && le.Uint32(r.bankOf(i)) > r.serial {
			r.bank, r.serial = i, le.Uint32(r.bankOf(i))
		}
	}
}

// Rules returns the text that SetRules stored last. The bool is false if there is none.
func (r *Journal) Rules() (string, bool) {
	if r == nil || r.serial == 0 {
		return "", false
	}
	text, ok := r.text(r.bank)
	return string(text), ok
}

// SetRules stores a text of at most MaxRules bytes. If the process dies during the call, the former
// text stays valid.
func (r *Journal) SetRules(text string) error {
	if r == nil {
		return nil
	}
	if len(text) > MaxRules {
		return fmt.Errorf("the rules take %d bytes, and the switch can store %d: use fewer rules or shorter names (id, service)", len(text), MaxRules)
	}
	next := 1 - r.bank
	b := r.bankOf(next)
	le.PutUint32(b, 0)
	copy(b[bankHead:], text)
	le.PutUint32(b[bankLength:], uint32(len(text)))
	le.PutUint32(b, r.serial+1)
	le.PutUint32(b[bankSum:], bankChecksum(b, b[bankHead:bankHead+len(text)]))
	r.bank, r.serial = next, r.serial+1
	return nil
}
