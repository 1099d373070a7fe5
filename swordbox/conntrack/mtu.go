package conntrack

import (
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// The path MTUs (IBTA 9.3.1) are the powers of two from minMTU to maxMTU, in bytes.
const (
	minMTU = 256
	maxMTU = 4096
)

// isMTU reports whether n bytes can be a path MTU.
func isMTU(n int) bool { return n >= minMTU && n <= maxMTU && n&(n-1) == 0 }

// mtuOf returns the path MTU in bytes for the code in a REQ; 0 means that the code is invalid (IBTA
// 9.3.1).
func mtuOf(code uint8) int {
	if code < 1 || code > 5 {
		return 0
	}
	return 128 << code
}

// pathMTU is what the table knows of the path MTU of a connection.
type pathMTU struct {
	// MTU is the path MTU in bytes; 0 means not known.
	MTU int
	// atLeast is a lower bound of the path MTU: the length of the longest READ that was answered by
	// one packet.
	atLeast int
}

// SpanOf returns the number of PSNs that a READ of n bytes takes; 0 means that it depends on the
// MTU, and the table does not know the MTU.
func (m *pathMTU) SpanOf(n uint32) int {
	switch {
	case n <= uint32(max(m.atLeast, minMTU, m.MTU)):
		return 1
	case m.MTU != 0:
		return int((uint64(n) + uint64(m.MTU) - 1) / uint64(m.MTU))
	}
	return 0
}

// maxSpan returns an upper bound of the number of PSNs of a request for n bytes. span is their
// exact number, or 0 if it is not known.
func maxSpan(span int, n uint32) int {
	if span != 0 {
		return span
	}
	return int((uint64(n) + minMTU - 1) / minMTU)
}

// learnMTU records the path MTU n for both directions of a connection.
func (fl *Flow) learnMTU(n int) {
	fl.setMTU(n)
	if fl.Peer != nil {
		fl.Peer.setMTU(n)
	}
}

// measure learns the path MTU from the length of a READ response.
func (fl *Flow) measure(f *wire.Frame) {
	switch n := len(f.Payload); {
	case f.BTH.Opcode == wire.RCReadResponseFirst || f.BTH.Opcode == wire.RCReadResponseMiddle:
		if isMTU(n) {
			fl.learnMTU(n)
		}
	case f.BTH.Opcode == wire.RCReadResponseOnly && n > fl.PathMTU.atLeast && n <= maxMTU:
		if fl.PathMTU.atLeast = n; fl.sync == readOpen && fl.open.length == uint32(n) {
			fl.countRead()
		}
		if n > maxMTU/2 {
			fl.learnMTU(maxMTU)
		}
	}
}
