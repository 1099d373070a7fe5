package serve

import (
	"slices"

	"golang.org/x/sys/unix"
)

// area manages the memory of a program's rings. It is one memory file (a memfd): first the control
// page, then the rings. Rings take whole pages, first fit.
type area struct {
	fd    int
	bytes []byte
	free  []span // free spans in the order of their offsets; adjacent spans are merged
}

// span is n bytes of the area from offset `at` on.
type span struct{ at, n int }

// areaLen is the size of the area in bytes: twice Limits.QueueBytes, so that rings fit even when
// the free memory is fragmented, but at most 64 GiB. Unused pages take no memory.
func (l *Limits) areaLen() int { return int(min(2*l.QueueBytes, 1<<36)) &^ 4095 }

func newArea(fd int, bytes []byte) area {
	return area{fd, bytes, []span{{controlPages, len(bytes) - controlPages}}}
}

func (a *area) size() int { return len(a.bytes) }

// take allocates n bytes of the area, a multiple of the page size.
func (a *area) take(n int) (at int, bytes []byte, ok bool) {
	for i := range a.free {
		s := &a.free[i]
		if s.n < n {
			continue
		}
		at = s.at
		s.at, s.n = s.at+n, s.n-n
		if s.n == 0 {
			a.free = slices.Delete(a.free, i, i+1)
		}
		return at, a.bytes[at : at+n : at+n], true
	}
	return 0, nil, false
}

// give frees n bytes of the area. The kernel takes their pages back; they are zero when they are
// used again.
func (a *area) give(at, n int) {
	_ = unix.Fallocate(a.fd, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(at), int64(n)) // if this fails, the pages stay allocated
	i, _ := slices.BinarySearchFunc(a.free, at, func(s span, at int) int { return s.at - at })
	a.free = slices.Insert(a.free, i, span{at, n})
	if i+1 < len(a.free) && at+n == a.free[i+1].at {
		a.free[i].n += a.free[i+1].n
		a.free = slices.Delete(a.free, i+1, i+2)
	}
	if i > 0 && a.free[i-1].at+a.free[i-1].n == at {
		a.free[i-1].n += a.free[i].n
		a.free = slices.Delete(a.free, i, i+1)
	}
}
