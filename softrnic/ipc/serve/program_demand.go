package serve

import (
	"math"

	"github.com/rdmalab/rdmalab/softrnic/mem"
)

// wholeSpace is the length of a region on demand that a program registers at address 0 to have all of
// its memory in it, also what it maps later. programSpace is the length that such a region gets:
// programs have addresses of 47 bits.
const (
	wholeSpace   = math.MaxUint64
	programSpace = 1 << 47
)

// onDemand accesses memory of a program that was not examined when it was registered: each access
// looks what the program has mapped there now. Without that, the NIC could write to pages that the
// program itself can only read, because /proc/self/mem can.
//
// The pages may be of any file, and to look at a program's mappings may block while one of its threads
// waits for a page. So the goroutine of the guard, which an onDemand is, does both.
type onDemand guard

var _ mem.Far = (*onDemand)(nil)

func (m *programMemory) onDemand() (mem.Far, error) {
	if _, err := m.accessor(true); err != nil {
		return nil, err
	}
	return (*onDemand)(m.guard), nil
}

func (d *onDemand) Read(p []byte, at uint64) bool { return (*guard)(d).copy(p, at, false, true) }

func (d *onDemand) Write(p []byte, at uint64) bool { return (*guard)(d).copy(p, at, true, true) }

// may reports whether the program can read n bytes at an address, and write them if write is set.
func (m *programMemory) may(at uint64, n int, write bool) bool {
	_, _, err := m.examine(at, at+uint64(n), write)
	return err == nil
}
