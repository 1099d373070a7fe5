package serve

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"iter"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// programMemory accesses the memory of a program by the program's files /proc/self/mem and
// /proc/self/maps. The program has opened them and sent the descriptors, so that the daemon needs
// no permission of its own. A program that sends the file of another process could write to that
// process anyway.
//
// The methods that access memory are called with exclusive use of the engine. They are for pages
// that the kernel can provide at once; guard is for all others.
type programMemory struct {
	fd    int
	maps  *os.File
	user  uint32 // user ID of the program
	stuck *stuck // shared by all clients of the server
	// guard is made with the first region that needs it; only the goroutine that executes the
	// program's commands uses the pointer.
	guard *guard
	// lost is true when the kernel has not provided a page of guarded memory in time. From then on
	// the NIC accesses no memory of the program: while the kernel waits for a page, it may block
	// access to all other pages, too.
	lost atomic.Bool
}

var _ mem.Far = (*programMemory)(nil)

// newProgramMemory makes a programMemory of the descriptors in a program's first message. The
// programMemory owns them; after an error they are closed. It refuses files that are not in procfs,
// because such a file could block the daemon.
func newProgramMemory(fds []int, user uint32, s *stuck) (*programMemory, error) {
	if len(fds) != uverbs.HelloFDs {
		return nil, errors.Join(fmt.Errorf("%w: %d descriptors", verbs.ErrInvalid, len(fds)), closeAll(fds))
	}
	if err := areProc(fds, user, s); err != nil {
		return nil, err
	}
	return &programMemory{
		fd: fds[uverbs.HelloMem], maps: os.NewFile(uintptr(fds[uverbs.HelloMaps]), "program-maps"),
		user: user, stuck: s,
	}, nil
}

// procWait is how long the question may take which file system a descriptor is of. Procfs answers at once.
const procWait = time.Second

// areProc checks that descriptors of a first message are memory and maps of a process; it closes them after an error.
// Of another file system, the kernel may ask a server, which need not answer: such a question goes on
// without the connection, and closes the descriptors at its end. It counts among what is stuck of the user. Files of the
// procfs that the daemon sees itself are asked about at once.
func areProc(fds []int, user uint32, s *stuck) error {
	question := func() error {
		return errors.Join(isProc(fds[uverbs.HelloMem], "mem"), isProc(fds[uverbs.HelloMaps], "maps"))
	}
	closing := func(err error) error {
		if err != nil {
			err = errors.Join(err, closeAll(fds))
		}
		return err
	}
	if ownProc(fds[uverbs.HelloMem]) && ownProc(fds[uverbs.HelloMaps]) {
		return closing(question())
	}
	if s.of(user) >= maxStuck {
		return closing(limitError("attach", "%d questions about files of this user are not answered", maxStuck))
	}
	done := make(chan error, 1)
	go func() { done <- question() }()
	select {
	case err := <-done:
		return closing(err)
	case <-time.After(procWait):
	}
	s.add(user, 1)
	go func() {
		_ = errors.Join(<-done, closeAll(fds)) // it was refused already
		s.add(user, -1)
	}()
	return notProc("mem or maps: its file system does not answer")
}

// ownProc reports whether a descriptor is of the same procfs as the daemon's /proc. It asks no server.
func ownProc(fd int) bool {
	own, err := unix.Open("/proc/self", unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		return false
	}
	defer unix.Close(own)
	a, errOwn := inodeOf(own)
	b, errFD := inodeOf(fd)
	return errOwn == nil && errFD == nil && a.device == b.device
}

// isProc checks that a descriptor is a file of procfs with that name. It asks the file system last.
func isProc(fd int, name string) error {
	link, err := os.Readlink(fmt.Sprintf("/proc/self/fd/%d", fd))
	if err != nil || filepath.Base(link) != name {
		return notProc(name)
	}
	var fs unix.Statfs_t
	if err := unix.Fstatfs(fd, &fs); err != nil {
		return err
	}
	if fs.Type != unix.PROC_SUPER_MAGIC {
		return notProc(name)
	}
	return nil
}

func notProc(name string) error {
	return &verbs.OpError{Op: "attach", Err: verbs.ErrAccess, Detail: "a descriptor is not /proc/self/" + name}
}

func (m *programMemory) close() error {
	if m.guard != nil {
		m.guard.close()
	}
	return errors.Join(unix.Close(m.fd), m.maps.Close())
}

func (m *programMemory) Read(p []byte, addr uint64) bool {
	return !m.lost.Load() && readAt(m.fd, p, addr)
}

func (m *programMemory) Write(p []byte, addr uint64) bool {
	return !m.lost.Load() && writeAt(m.fd, p, addr)
}

func readAt(fd int, p []byte, at uint64) bool {
	n, err := unix.Pread(fd, p, int64(at))
	return err == nil && n == len(p)
}

func writeAt(fd int, p []byte, at uint64) bool {
	n, err := unix.Pwrite(fd, p, int64(at))
	return err == nil && n == len(p)
}

// maxMaps is the largest number of a program's mappings that a registration examines.
const maxMaps = 1 << 20

// mapping is a part of a program's address space, from a line of /proc/PID/maps.
type mapping struct {
	from, to, offset uint64 // addresses of the program; offset is the place in the file that is mapped at address from
	rights           string // as in the line, for example rw-p
	file             inode  // zero for memory that is of no file
	name             string // path of the file, or a name like [heap]
}

// inode identifies a file.
type inode struct{ device, number uint64 }

// lines returns the lines of /proc/PID/maps. A line is valid until the next one.
func (m *programMemory) lines() iter.Seq[[]byte] {
	return func(yield func([]byte) bool) {
		r := bufio.NewScanner(io.NewSectionReader(m.maps, 0, 1<<40))
		for n := 0; n < maxMaps && r.Scan() && yield(r.Bytes()); n++ {
		}
	}
}

// mappings returns the mappings that together are [start, end). It fails with EFAULT if the program
// has not mapped all of it.
func (m *programMemory) mappings(start, end uint64) (all []mapping, err error) {
	if all, err = m.query(start, end); !errors.Is(err, errNoQuery) {
		return all, err
	}
	return m.read(start, end)
}

// read does what mappings does, by the lines of the file.
func (m *programMemory) read(start, end uint64) (all []mapping, err error) {
	w := walk{start: start, end: end}
	for line := range m.lines() {
		if to, ok := endOf(line); ok && to <= w.start {
			continue
		}
		x, ok := parseMapping(string(line))
		if !ok {
			return nil, unix.EFAULT
		}
		if done, err := w.add(x); done || err != nil {
			return w.all, err
		}
	}
	return nil, unix.EFAULT
}

// walk collects the mappings that together are [start, end); start moves on with each.
type walk struct {
	start, end uint64
	all        []mapping
}

// add adds the next mapping, and reports whether it was the last. It fails with EFAULT if the mapping
// does not begin at start or before.
func (w *walk) add(x mapping) (done bool, err error) {
	if x.from > w.start {
		w.all = nil
		return false, unix.EFAULT
	}
	x.offset, x.from = x.offset+w.start-x.from, w.start
	done = x.to >= w.end
	x.to = min(x.to, w.end)
	w.start = x.to
	w.all = append(w.all, x)
	return done, nil
}

// mappingsOf returns where the program has mapped `file`, the memory file of a share.
func (m *programMemory) mappingsOf(file inode) (all []mapping) {
	for line := range m.lines() {
		if !bytes.Contains(line, []byte(uverbs.ShareName)) {
			continue
		}
		if x, ok := parseMapping(string(line)); ok && x.file == file {
			all = append(all, x)
		}
	}
	return all
}

// endOf returns the end of a mapping, the second number of its line. A program with a thousand
// connections has thousands of mappings, and each registration looks at them: this is many times as
// fast as parseMapping.
func endOf(line []byte) (to uint64, ok bool) {
	_, rest, ok := bytes.Cut(line, []byte("-"))
	for i, c := range rest {
		switch {
		case c >= '0' && c <= '9':
			to = to<<4 | uint64(c-'0')
		case c >= 'a' && c <= 'f':
			to = to<<4 | uint64(c-'a'+10)
		default:
			return to, ok && i > 0 && c == ' '
		}
	}
	return 0, false
}

func parseMapping(line string) (x mapping, ok bool) {
	var major, minor uint32
	n, _ := fmt.Sscanf(line, "%x-%x %4s %x %x:%x %d %s", &x.from, &x.to, &x.rights, &x.offset, &major, &minor, &x.file.number, &x.name)
	if x.file.number != 0 {
		x.file.device = unix.Mkdev(major, minor)
	}
	return x, n >= 7 && len(x.rights) == 4 && x.from < x.to // a line without name has 7 fields
}

// examine checks that the program has mapped all of [start, end) readable, and also writable if
// write is set. This is needed because /proc/self/mem can write even to pages that the program
// cannot. It returns the mappings, and whether the kernel may make a thread wait for one of their
// pages.
func (m *programMemory) examine(start, end uint64, write bool) (all []mapping, waits bool, err error) {
	all, err = m.mappings(start, end)
	// A program of another user gets a guard for all its memory: it may map other pages at any time,
	// and so block the daemon.
	waits = m.user != uint32(os.Geteuid())
	for _, x := range all {
		if x.rights[0] != 'r' || write && x.rights[1] != 'w' {
			return nil, false, unix.EFAULT
		}
		waits = waits || x.file.number != 0 && !inMemory()[x.file.device]
	}
	return all, waits, err
}

// accessor returns how the NIC reads and writes the program's memory. If waits is true, the kernel
// may make the accessing thread wait for pages, for example for those of a userfaultfd. Then a
// guard, which is another thread, makes the access, so that the NIC does not wait.
func (m *programMemory) accessor(waits bool) (far mem.Far, err error) {
	if !waits {
		return m, nil
	}
	if m.guard == nil {
		if m.guard, err = m.newGuard(); err != nil {
			return nil, err
		}
	}
	return m.guard, nil
}

// inMemory has the device numbers of file systems whose files are always in memory.
var inMemory = sync.OnceValue(func() map[uint64]bool {
	devices := make(map[uint64]bool)
	var st unix.Stat_t
	for _, flags := range []int{unix.MFD_CLOEXEC, unix.MFD_CLOEXEC | unix.MFD_HUGETLB} {
		fd, err := unix.MemfdCreate("device", flags)
		if err != nil {
			continue // this kernel has no huge pages
		}
		if unix.Fstat(fd, &st) == nil {
			devices[st.Dev] = true
		}
		_ = unix.Close(fd) // the file is empty
	}
	for _, dir := range []string{"/dev/shm", "/dev/hugepages"} {
		var fs unix.Statfs_t
		if unix.Statfs(dir, &fs) != nil || unix.Stat(dir, &st) != nil {
			continue
		}
		if fs.Type == unix.TMPFS_MAGIC || fs.Type == unix.HUGETLBFS_MAGIC {
			devices[st.Dev] = true
		}
	}
	return devices
})

func (p *program) allocPD(struct{}) (result, error) {
	pd, err := made(&p.c.objects, "alloc PD", kindPD, 0, p.c.ctx.AllocPD)
	if err != nil {
		return result{}, err
	}
	return answer(uverbs.Handle{H: p.add(uPD, pd)}), nil
}

// destroy destroys an object by f, removes its handle and gives back its quotas.
func (p *program) destroy(k uverbsKind, h uint32, limit kind, queued int64, f func() error) error {
	err := f()
	if !gone(err) {
		return err
	}
	delete(p.objects[k], h)
	p.c.objects.giveBack(limit, 0, queued)
	return nil
}

func (p *program) deallocPD(pd verbs.PD, a uverbs.Handle) (result, error) {
	return result{}, p.destroy(uPD, a.H, kindPD, 0, pd.Dealloc)
}

// accessOptional has the bits of libibverbs for optional access rights
// (IBV_ACCESS_OPTIONAL_RANGE), which are ignored.
const accessOptional = 0x3ff << 20

func (p *program) regMR(pd verbs.PD, a uverbs.RegMRArgs) (result, error) {
	r, err := p.newRegion("reg MR", p.by, pd, a)
	if err != nil {
		return result{}, err
	}
	return answer(uverbs.MR{H: p.add(uMR, r), LKey: r.mr.LKey(), RKey: r.mr.RKey()}), nil
}

// accessIgnored are the access bits that are no rights, and that regions do not keep.
const accessIgnored = accessOptional | uverbs.ZeroBased | uverbs.OnDemand | uverbs.HugePages | uverbs.OwnProvider

// newRegion registers memory of the process `by`.
func (p *program) newRegion(op string, by *caller, pd verbs.PD, a uverbs.RegMRArgs) (*programRegion, error) {
	access, others := uverbs.AccessOf(a.Access &^ accessIgnored)
	base := a.VA
	if a.Access&uverbs.ZeroBased != 0 {
		base = 0
	}
	if a.Start == 0 && a.Length == wholeSpace && a.Access&uverbs.OnDemand != 0 {
		base, a.Length = 0, programSpace
	}
	switch {
	case others != 0, a.Access&(uverbs.OnDemand|uverbs.HugePages) != 0 && a.Access&uverbs.OwnProvider == 0:
		return nil, unix.EOPNOTSUPP
	case a.Length == 0 || a.Start+a.Length < a.Start:
		return nil, unix.EINVAL
	case by.mem.lost.Load():
		return nil, unix.EFAULT
	}
	all, far, err := by.accessTo(a, access&verbs.LocalWrite != 0)
	if err != nil {
		return nil, err
	}
	r := &programRegion{of: p.c, pd: pd, made: a, mem: by.mem, process: by.process}
	far = r.process.register(r, all, far)
	r.mr, err = made(&p.c.objects, op, kindMR, 0, func() (verbs.MR, error) {
		return verbsengine.RegFarMR(pd, far, a.Start, base, a.Length, access)
	})
	if err != nil {
		r.process.deregister(r)
		return nil, err
	}
	p.kin.hold(r.mem)
	return r, nil
}

// accessTo returns the mappings of a region that is about to be made, and how the NIC accesses its
// memory; write: it also writes there.
func (by *caller) accessTo(a uverbs.RegMRArgs, write bool) (all []mapping, far mem.Far, err error) {
	if a.Access&uverbs.OnDemand != 0 {
		far, err = by.mem.onDemand()
		return []mapping{{from: a.Start, to: a.Start + a.Length}}, far, err
	}
	all, waits, err := by.mem.examine(a.Start, a.Start+a.Length, write)
	if err != nil {
		return nil, nil, err
	}
	far, err = by.mem.accessor(waits)
	return all, far, err
}

func (p *program) deregMR(r *programRegion, a uverbs.Handle) (result, error) {
	err := p.destroy(uMR, a.H, kindMR, 0, r.mr.Dereg)
	if gone(err) {
		p.dropped(r)
	}
	return result{}, err
}

func (p *program) allocMW(pd verbs.PD, a uverbs.MWArgs) (result, error) {
	if a.Type != uverbs.MWType1 && a.Type != uverbs.MWType2 {
		return result{}, unix.EINVAL
	}
	mw, err := made(&p.c.objects, "alloc MW", kindMW, 0, pd.AllocMW)
	if err != nil {
		return result{}, err
	}
	if a.Type == uverbs.MWType1 {
		verbsengine.MakeType1(mw)
	}
	h := p.add(uMW, mw)
	key, err := mw.RKey()
	return answer(uverbs.MW{H: h, RKey: key}), err
}

func (p *program) deallocMW(mw verbs.MW, a uverbs.Handle) (result, error) {
	return result{}, p.destroy(uMW, a.H, kindMW, 0, mw.Dealloc)
}
