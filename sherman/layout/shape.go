package layout

import (
	"errors"
	"fmt"
)

// Bounds of a Shape, in bytes.
const (
	DefaultPage = 1024
	MinPage     = 256
	MaxPage     = 16384
	// DefaultValue is the published length of values.
	DefaultValue = 8
	// MaxSoundValue is what fits into one line with key and mark.
	MaxSoundValue = Line - soundOverhead
	// MaxFaithfulValue leaves several records to the smallest page.
	MaxFaithfulValue = 54
	// Line is what memory shows whole.
	Line = 64
)

// MaxKey is the upper end of the last page's range. It belongs to that page.
const MaxKey = ^uint64(0)

// Shape is how the pages of one tree are made. The zero value stands for the defaults.
type Shape struct {
	Kind Kind
	// Page is the length of a page, a power of two; 0: 1024.
	Page int
	// Value is the longest value; 0: 8.
	Value int
}

// Errors of this package.
var (
	// ErrTorn says that a page or record was written while it was read: read it again.
	ErrTorn = errors.New("page was written while it was read")
	// ErrPage says that bytes cannot be a page.
	ErrPage = errors.New("not a page")
	// ErrShape says that a Shape cannot be.
	ErrShape = errors.New("shape of pages")
)

// WithDefaults fills in what is zero.
func (s Shape) WithDefaults() Shape {
	if s.Page == 0 {
		s.Page = DefaultPage
	}
	if s.Value == 0 {
		s.Value = DefaultValue
	}
	return s
}

// Validate reports what is wrong. Zeros are wrong: see WithDefaults.
func (s Shape) Validate() error {
	limit := MaxSoundValue
	if s.Kind == Faithful {
		limit = MaxFaithfulValue
	}
	switch {
	case s.Kind > Faithful:
		return fmt.Errorf("%w: unknown kind %d", ErrShape, s.Kind)
	case s.Page < MinPage || s.Page > MaxPage || s.Page&(s.Page-1) != 0:
		return fmt.Errorf("%w: pages of %d bytes; want a power of two from %d to %d", ErrShape, s.Page, MinPage, MaxPage)
	case s.Value < DefaultValue || s.Value > limit:
		return fmt.Errorf("%w: values of %d bytes; want %d to %d, whatever the page: memory shows %d bytes whole, and a record must not be seen half "+
			"written; keep longer values in the store clover, or elsewhere, and their places here", ErrShape, s.Value, DefaultValue, limit, Line)
	}
	return nil
}

// String says it in words.
func (s Shape) String() string {
	return fmt.Sprintf("%v, pages of %d bytes, values of up to %d", s.Kind, s.Page, s.Value)
}

// ValueLen is the room for a value in a record of a level: internal records hold addresses.
func (s Shape) ValueLen(level int) int {
	if level > 0 {
		return addrLen
	}
	return s.Value
}

const addrLen = 8

// RecordLen is the length of a record of a level, and of the WRITE that changes one (Sound; leaves of Faithful).
func (s Shape) RecordLen(level int) int {
	if s.Kind == Faithful && level > 0 {
		return faithfulInternal
	}
	return s.ValueLen(level) + soundOverhead // the same for both: 2 bytes of marks, or 2 versions
}

// Slots is how many records a page of a level holds.
func (s Shape) Slots(level int) int {
	if s.Kind == Faithful {
		return (s.Page - faithfulHeader - 1) / s.RecordLen(level)
	}
	return (s.Page/Line - 1) * s.perLine(level)
}

func (s Shape) perLine(level int) int { return Line / s.RecordLen(level) }

// slotAt is the offset of a record.
func (s Shape) slotAt(level, i int) int {
	if s.Kind == Faithful {
		return faithfulHeader + i*s.RecordLen(level)
	}
	n := s.perLine(level)
	return Line + i/n*Line + i%n*s.RecordLen(level)
}
