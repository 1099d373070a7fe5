package pcapng

import (
	"fmt"
	"math"
	"math/bits"
)

// iface is a captured network interface, as a section of the file describes it.
type iface struct {
	name     string
	linkType LinkType
	snapLen  uint32 // bytes; 0 means no limit
	resol    uint8  // if_tsresol: 10^-resol s if the top bit is clear, else 2^-resol s
	offset   int64  // seconds to add to every time
}

// defaultResol is the if_tsresol of microseconds, which are the default unit of times.
const defaultResol = 6

func (s *sections) addInterface(b []byte) error {
	if len(b) < interfaceLen {
		return fmt.Errorf("%w: an interface block of %d bytes", ErrCorrupt, len(b))
	}
	if len(s.interfaces) == maxInterfaces {
		return fmt.Errorf("%w: more than %d interfaces", ErrCorrupt, maxInterfaces)
	}
	f := iface{linkType: LinkType(s.order.Uint16(b)), snapLen: s.order.Uint32(b[4:]), resol: defaultResol}
	err := options(b[interfaceLen:], s.order, func(code uint16, value []byte) {
		switch {
		case code == optName:
			f.name = string(value)
		case code == optTSResol && len(value) == 1:
			f.resol = value[0]
		case code == optTSOffset && len(value) == 8:
			f.offset = int64(s.order.Uint64(value))
		}
	})
	s.interfaces = append(s.interfaces, f)
	return err
}

// nanos converts a time in the interface's unit to nanoseconds since 1970. Times that do not fit
// into int64 become its nearest value.
func (f *iface) nanos(ticks uint64) int64 {
	const binary, nanoDigits = 0x80, 9
	exp := int(f.resol &^ binary)
	var hi, lo uint64
	switch {
	case f.resol&binary != 0:
		hi, lo = bits.Mul64(ticks, second)
		hi, lo = shiftRight(hi, lo, exp)
	case exp <= nanoDigits:
		hi, lo = bits.Mul64(ticks, pow10(nanoDigits-exp))
	case exp <= nanoDigits+maxPow10:
		lo = ticks / pow10(exp-nanoDigits)
	}
	if hi != 0 || lo > math.MaxInt64 {
		return math.MaxInt64
	}
	return addSeconds(int64(lo), f.offset)
}

// second is a second in nanoseconds.
const second = 1_000_000_000

// maxPow10 is the largest power of ten that fits into uint64.
const maxPow10 = 19

func pow10(n int) uint64 {
	p := uint64(1)
	for range n {
		p *= 10
	}
	return p
}

// shiftRight shifts the 128-bit number hi, lo right by n bits; n < 128.
func shiftRight(hi, lo uint64, n int) (uint64, uint64) {
	if n >= 64 {
		return 0, hi >> (n - 64)
	}
	return hi >> n, hi<<(64-n) | lo>>n
}

// addSeconds returns nanos, which is not negative, plus s seconds, limited to the range of int64. If
// s seconds alone are below that range, it returns the smallest int64.
func addSeconds(nanos, s int64) int64 {
	const limit = math.MaxInt64 / second
	switch {
	case s > limit:
		return math.MaxInt64
	case s < -limit:
		return math.MinInt64
	case s > 0 && nanos > math.MaxInt64-s*second:
		return math.MaxInt64
	}
	return nanos + s*second
}
