package layout

import (
	"cmp"
	"errors"
	"fmt"
)

// Limits of a Shape, in bytes.
const (
	DefaultPage = 1024
	MinPage     = 256
	MaxPage     = 16384
	// DefaultValue is the published length of values.
	DefaultValue = 8
	// MaxHardenedValue is the length of the longest value that fits into one line (Line) together
	// with the key and the mark of its slot.
	MaxHardenedValue = Line - hardenedOverhead
	// MaxPublishedValue is the greatest length of values in the other kinds of pages. The smallest
	// page then still has several records.
	MaxPublishedValue = 54
	// LockLen is the length of the lock word at the end of a checksummed page
	// (Superblock.PageLocks).
	LockLen = 8
	// Line is the length of the unit that memory reads and writes as a whole.
	Line = 64
)

// MaxKey is the upper end of the range of a level's last page. Unlike the upper ends of other
// pages, this key itself belongs to the page.
const MaxKey = ^uint64(0)

// Shape describes the pages of one tree. Zero fields stand for defaults.
type Shape struct {
	Kind Kind
	// Page is the length of a page in bytes, a power of two; 0 means 1024.
	Page int
	// Value is the length of the longest value in bytes; 0 means 8.
	Value int
}

// Errors of this package.
var (
	// ErrTorn means that a page or record was written while it was being read. The caller reads it
	// again.
	ErrTorn  = errors.New("page was written while it was read")
	ErrPage  = errors.New("not a page")
	ErrShape = errors.New("invalid shape of pages")
)

// WithDefaults returns the shape with defaults in place of zero fields.
func (s Shape) WithDefaults() Shape {
	s.Page = cmp.Or(s.Page, DefaultPage)
	s.Value = cmp.Or(s.Value, DefaultValue)
	return s
}

// Validate returns an error for the first field that is out of range. A Page or Value of 0 is out
// of range, too: see WithDefaults.
func (s Shape) Validate() error {
	limit := MaxHardenedValue
	if s.Kind != Hardened {
		limit = MaxPublishedValue
	}
	switch {
	case s.Kind > Checksummed:
		return fmt.Errorf("%w: unknown kind %d", ErrShape, s.Kind)
	case s.Page < MinPage || s.Page > MaxPage || s.Page&(s.Page-1) != 0:
		return fmt.Errorf("%w: pages of %d bytes; want a power of two from %d to %d", ErrShape, s.Page, MinPage, MaxPage)
	case s.Value < DefaultValue || s.Value > limit:
		return fmt.Errorf("%w: values of %d bytes; want %d to %d, whatever the page: memory writes %d bytes as a whole, and a record must not be seen half "+
			"written; keep longer values in a Clover store, or elsewhere, and their locations here", ErrShape, s.Value, DefaultValue, limit, Line)
	}
	return nil
}

func (s Shape) String() string {
	return fmt.Sprintf("%v, pages of %d bytes, values of up to %d", s.Kind, s.Page, s.Value)
}

// ValueLen returns the length of the value field in a record of a level. Records of internal pages
// contain addresses.
func (s Shape) ValueLen(level int) int {
	if level > 0 {
		return addrLen
	}
	return s.Value
}

const addrLen = 8

// RecordLen returns the length of a record of a level, in bytes. Hardened pages and published
// leaves change one record by a WRITE of this length.
func (s Shape) RecordLen(level int) int {
	if s.sorted(level) {
		return 8 + s.ValueLen(level)
	}
	// Besides key and value, a record has 2 bytes: a mark (Hardened) or two versions (Published).
	return s.ValueLen(level) + hardenedOverhead
}

// sorted reports whether records of a level are sorted and have no versions. Then each change
// writes the whole page.
func (s Shape) sorted(level int) bool {
	return s.Kind == Checksummed || s.Kind == Published && level > 0
}

// Slots returns how many records a page of a level holds.
func (s Shape) Slots(level int) int {
	if s.Kind == Checksummed {
		return (s.Page - publishedHeader - 1 - LockLen) / s.RecordLen(level)
	}
	if s.Kind != Hardened {
		return (s.Page - publishedHeader - 1) / s.RecordLen(level)
	}
	return (s.Page/Line - 1) * s.perLine(level)
}

func (s Shape) perLine(level int) int { return Line / s.RecordLen(level) }

// slotAt returns the offset of the record in slot i.
func (s Shape) slotAt(level, i int) int {
	if s.Kind != Hardened {
		return publishedHeader + i*s.RecordLen(level)
	}
	n := s.perLine(level)
	return Line + i/n*Line + i%n*s.RecordLen(level)
}
