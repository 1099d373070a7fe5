package serve

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// programMemory is the memory of a program: its /proc/self/mem and /proc/self/maps. The program has
// opened these files and sent the descriptors, so that the daemon needs no permission of its own. A
// program that sends the file of another process could write to that process anyway.
//
// The methods that access memory are called with exclusive use of the engine.
type programMemory struct {
	fd   int
	maps *os.File
	word [8]byte
}

var _ mem.Far = (*programMemory)(nil)

// newProgramMemory checks the descriptors of a first message and takes them over. A file that is
// not in procfs could make the daemon wait.
func newProgramMemory(fds []int) (*programMemory, error) {
	err := error(nil)
	if len(fds) != uverbs.HelloFDs {
		err = fmt.Errorf("%w: %d descriptors", verbs.ErrInvalid, len(fds))
	} else {
		err = errors.Join(isProc(fds[uverbs.HelloMem], "mem"), isProc(fds[uverbs.HelloMaps], "maps"))
	}
	if err != nil {
		return nil, errors.Join(err, closeAll(fds))
	}
	return &programMemory{fd: fds[uverbs.HelloMem], maps: os.NewFile(uintptr(fds[uverbs.HelloMaps]), "program-maps")}, nil
}

// isProc checks that a descriptor is a file of procfs with that name.
func isProc(fd int, name string) error {
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || fs.Type != unix.PROC_SUPER_MAGIC || filepath.Base(link) != name {
		return &verbs.OpError{Op: "attach", Err: verbs.ErrAccess, Detail: "a descriptor is not /proc/self/" + name}
	}
	return nil
}

func (m *programMemory) close() error { return errors.Join(unix.Close(m.fd), m.maps.Close()) }

// Read copies len(p) bytes at the address at into p, and reports success.
func (m *programMemory) Read(p []byte, at uint64) bool {
	n, err := unix.Pread(m.fd, p, int64(at))
	return err == nil && n == len(p)
}

// Write copies p to the address at, and reports success.
func (m *programMemory) Write(p []byte, at uint64) bool {
	n, err := unix.Pwrite(m.fd, p, int64(at))
	return err == nil && n == len(p)
}

// Load64 reads the word at the address at.
func (m *programMemory) Load64(at uint64) (uint64, bool) {
	ok := m.Read(m.word[:], at)
	return binary.NativeEndian.Uint64(m.word[:]), ok
}

// Store64 writes the word at the address at.
func (m *programMemory) Store64(at, v uint64) bool {
	binary.NativeEndian.PutUint64(m.word[:], v)
	return m.Write(m.word[:], at)
}

// maxMaps is the largest number of a program's mappings that a registration examines.
const maxMaps = 1 << 20

// allows reports whether the program has mapped all of [start, end) readable, and writable if write
// is set. The check is needed because writes through /proc/self/mem also reach pages that the
// program itself may not write.
func (m *programMemory) allows(start, end uint64, write bool) bool {
	r := bufio.NewScanner(io.NewSectionReader(m.maps, 0, 1<<40))
	for n := 0; n < maxMaps && r.Scan(); n++ {
		var from, to uint64
		var rights string
		if _, err := fmt.Sscanf(r.Text(), "%x-%x %4s", &from, &to, &rights); err != nil {
			return false
		}
		switch {
		case to <= start:
			continue
		case from > start, rights[0] != 'r', write && rights[1] != 'w':
			return false
		case to >= end:
			return true
		}
		start = to
	}
	return false
}

func (p *program) allocPD(struct{}) (result, error) {
	if err := p.c.objects.reserve("alloc PD", kindPD, 0, 0); err != nil {
		return result{}, err
	}
	pd, err := p.c.ctx.AllocPD()
	if err != nil {
		p.c.objects.giveBack(kindPD, 0, 0)
		return result{}, err
	}
	return answer(uverbs.Handle{H: p.add(uPD, pd)}), nil
}

// destroy destroys an object by f and removes its handle.
func (p *program) destroy(k uverbsKind, h uint32, limit kind, queued int64, f func() error) error {
	err := f()
	if !gone(err) {
		return err
	}
	delete(p.objects[k], h)
	p.c.objects.giveBack(limit, 0, queued)
	return nil
}

func (p *program) deallocPD(a uverbs.Handle) (result, error) {
	pd, err := named[verbs.PD](p, uPD, a.H)
	if err != nil {
		return result{}, err
	}
	return result{}, p.destroy(uPD, a.H, kindPD, 0, pd.Dealloc)
}

// accessBits are the access rights that a region may have; optional rights are ignored.
const (
	accessBits     = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic | verbs.MWBind
	accessOptional = 0x3ff << 20
)

// regMR registers memory of the program.
func (p *program) regMR(a uverbs.RegMRArgs) (result, error) {
	pd, err := named[verbs.PD](p, uPD, a.PD)
	if err != nil {
		return result{}, err
	}
	access := a.Access &^ accessOptional
	zero := access&uverbs.ZeroBased != 0
	access &^= uverbs.ZeroBased
	switch {
	case access&^uint32(accessBits) != 0:
		return result{}, unix.EOPNOTSUPP
	case a.Length == 0 || a.Start+a.Length < a.Start:
		return result{}, unix.EINVAL
	case !p.mem.allows(a.Start, a.Start+a.Length, access&uint32(verbs.LocalWrite) != 0):
		return result{}, unix.EFAULT
	}
	if err := p.c.objects.reserve("reg MR", kindMR, 0, 0); err != nil {
		return result{}, err
	}
	base := a.VA
	if zero {
		base = 0
	}
	mr, err := verbsengine.RegFarMR(pd, p.mem, a.Start, base, a.Length, verbs.Access(access))
	if err != nil {
		p.c.objects.giveBack(kindMR, 0, 0)
		return result{}, err
	}
	return answer(uverbs.MR{H: p.add(uMR, mr), LKey: mr.LKey(), RKey: mr.RKey()}), nil
}

func (p *program) deregMR(a uverbs.Handle) (result, error) {
	mr, err := named[verbs.MR](p, uMR, a.H)
	if err != nil {
		return result{}, err
	}
	return result{}, p.destroy(uMR, a.H, kindMR, 0, mr.Dereg)
}

// allocMW makes a memory window.
func (p *program) allocMW(a uverbs.MWArgs) (result, error) {
	pd, err := named[verbs.PD](p, uPD, a.PD)
	if err != nil {
		return result{}, err
	}
	if a.Type != uverbs.MWType1 && a.Type != uverbs.MWType2 {
		return result{}, unix.EINVAL
	}
	if err := p.c.objects.reserve("alloc MW", kindMW, 0, 0); err != nil {
		return result{}, err
	}
	mw, err := pd.AllocMW()
	if err != nil {
		p.c.objects.giveBack(kindMW, 0, 0)
		return result{}, err
	}
	if a.Type == uverbs.MWType1 {
		verbsengine.MakeType1(mw)
	}
	h := p.add(uMW, mw)
	key, err := mw.RKey()
	return answer(uverbs.MW{H: h, RKey: key}), err
}

func (p *program) deallocMW(a uverbs.Handle) (result, error) {
	mw, err := named[verbs.MW](p, uMW, a.H)
	if err != nil {
		return result{}, err
	}
	return result{}, p.destroy(uMW, a.H, kindMW, 0, mw.Dealloc)
}
