package serve

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// share is memory of a program that the daemon has mapped, too: a memory file (a memfd), which the
// daemon makes and with which the preloaded library replaces private pages of the program. The NIC
// accesses these pages without system calls.
//
// A share exists while a client is charged for it. A client is charged from when it asks for the
// share, or first registers a part of it, until the library ends the share (see unshare) or the
// client ends. A share that the library ends while it closes a client's connection stays mapped
// until the client has ended.
type share struct {
	number  uint32          // follows uverbs.ShareName in the name of the file
	bytes   []byte          // where the daemon has mapped the file
	regions map[*client]int // number of regions over it, by client that is charged for it
}

func (s *share) used() (sum int) {
	for _, n := range s.regions {
		sum += n
	}
	return sum
}

// process is a process that has opened the NIC by libibverbs, once for each of its clients. It has
// the memory that these clients share with the daemon.
//
// While the library replaces pages by a share, it sends no command that concerns memory on any
// connection of the process, because meanwhile the kernel refuses the daemon's writes to these
// pages by /proc/PID/mem.
type process struct {
	clients int // guarded by processes.mu

	mu     sync.Mutex // guards the fields below
	shares map[inode]*share
	// far has the regions of which the NIC accesses some memory by /proc/PID/mem.
	far map[*programRegion]struct{}
}

func newProcess() *process {
	return &process{shares: make(map[inode]*share), far: make(map[*programRegion]struct{})}
}

// processKey identifies a process. The daemon sees all processes of other PID namespaces as PID 0;
// only their tokens differ.
type processKey struct {
	pid   int32
	user  uint32
	token [uverbs.TokenLen]byte
}

func (c *client) processKey() processKey { return processKey{c.cred.Pid, c.cred.Uid, c.token} }

// processes has the processes of all clients that are unmodified programs.
type processes struct {
	mu   sync.Mutex // guards the fields below
	all  map[processKey]*process
	last uint32 // number of the newest share
}

// enter counts a new client of a process and returns the process. leave is its inverse.
func (x *processes) enter(k processKey) *process {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.all[k]
	if p == nil {
		p = newProcess()
		if x.all == nil {
			x.all = make(map[processKey]*process)
		}
		x.all[k] = p
	}
	p.clients++
	return p
}

func (x *processes) next() uint32 {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.last++
	return x.last
}

// leave is called when all regions of the client have ended. It unmaps the shares for which no
// other client is charged.
func (x *processes) leave(p *process, c *client) error {
	x.mu.Lock()
	if p.clients--; p.clients == 0 {
		delete(x.all, c.processKey())
	}
	x.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	var errs []error
	for file, s := range p.shares {
		if delete(s.regions, c); len(s.regions) == 0 {
			delete(p.shares, file)
			errs = append(errs, ring.Unmap(s.bytes))
		}
	}
	for r := range p.far {
		if r.of == c {
			delete(p.far, r)
		}
	}
	return errors.Join(errs...)
}

// addresses is a range of addresses of a program.
type addresses struct{ from, to uint64 }

func (a addresses) overlaps(b addresses) bool { return a.from < b.to && b.from < a.to }

// programRegion is a region of a program's memory, or of its device memory; then pd is nil. made has
// the arguments of its registration.
type programRegion struct {
	mr   verbs.MR
	pd   verbs.PD
	made uverbs.RegMRArgs
	of   *client
	// mem and process are those of the process that has registered the region; nil as pd.
	mem     *programMemory
	process *process
	shares  []*share    // the shares that have memory of the region
	far     []addresses // memory of the region that the NIC accesses by /proc/PID/mem
}

// register returns how the NIC accesses the memory of a new region; `all` are the region's
// mappings. The NIC accesses shares directly, as far as the client's quota allows, and all other
// memory through the parameter far.
func (p *process) register(r *programRegion, all []mapping, far mem.Far) mem.Far {
	p.mu.Lock()
	defer p.mu.Unlock()
	v := &sharedView{far: far}
	for _, x := range all {
		part := sharedPart{at: x.from, n: x.to - x.from}
		if s := p.shareOf(x); s != nil && p.charge(r, s) {
			part.bytes = s.bytes[x.offset : x.offset+part.n]
		} else {
			r.far = append(r.far, addresses{x.from, x.to})
		}
		v.parts = append(v.parts, part)
	}
	if len(r.far) > 0 {
		p.far[r] = struct{}{}
	}
	if len(r.shares) == 0 {
		return far
	}
	return v
}

// shareOf returns the share whose memory is mapped by x, a mapping of the program; nil if x maps no
// share.
func (p *process) shareOf(x mapping) *share {
	s := p.shares[x.file]
	// A program may map the file with an offset, and further than its end.
	if s == nil || x.rights[3] != 's' || x.offset > uint64(len(s.bytes)) || x.to-x.from > uint64(len(s.bytes))-x.offset {
		return nil
	}
	return s
}

// charge is called when region r covers memory of share s. It charges the client of r for s, unless
// the client is charged already, and counts r among the client's regions in s. It returns false if
// the client's quota does not allow the charge.
func (p *process) charge(r *programRegion, s *share) bool {
	if slices.Contains(r.shares, s) {
		return true
	}
	if _, charged := s.regions[r.of]; !charged && r.of.objects.reserve("reg MR", kindShare, int64(len(s.bytes)), 0) != nil {
		return false
	}
	s.regions[r.of]++
	r.shares = append(r.shares, s)
	return true
}

// deregister is called when a region has ended, or was not made.
func (p *process) deregister(r *programRegion) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, s := range r.shares {
		s.regions[r.of]--
	}
	delete(p.far, r)
}

// next returns the first part of the mappings `all` that the library may replace by a share. ok is
// false if there is none. Only private anonymous memory is shared, without the first thread's
// stack, and no page that the NIC accesses by /proc/PID/mem.
func (p *process) next(all []mapping, page uint64) (part addresses, ok bool) {
	for _, x := range all {
		anonymous := x.name == "" || x.name == "[heap]" || strings.HasPrefix(x.name, "[anon:")
		if (x.file != inode{}) || !anonymous || x.rights != "rw-p" {
			continue
		}
		for part = (addresses{x.from, x.to}); part.from < part.to; {
			first, found := p.firstFar(part)
			if !found {
				return part, true
			}
			if first.from = first.from &^ (page - 1); first.from > part.from {
				return addresses{part.from, first.from}, true
			}
			part.from = (first.to + page - 1) &^ (page - 1)
		}
	}
	return addresses{}, false
}

// firstFar returns, of the memory that the NIC accesses by /proc/PID/mem, the part with the lowest
// address that overlaps the range `in`. ok is false if there is none.
func (p *process) firstFar(in addresses) (first addresses, ok bool) {
	for r := range p.far {
		for _, f := range r.far {
			if f.overlaps(in) && (!ok || f.from < first.from) {
				first, ok = f, true
			}
		}
	}
	return first, ok
}

// share executes the command ShareMemory: it makes a share for a part of the memory that the
// program is about to register. The library repeats the command until nothing is left that can be
// shared: then the answer has no descriptor. Only pages that lie completely in the region are
// shared. Other pages may also have memory of the library or of libc, which a child of fork changes
// before the library can make the pages private again.
func (p *program) share(a uverbs.ShareArgs) (result, error) {
	page := uint64(os.Getpagesize())
	if a.Start >= a.End || a.End > math.MaxInt64-page {
		return result{}, unix.EINVAL
	}
	none := answer(uverbs.Share{})
	if p.by != p.self {
		return none, nil // memory of children is not shared: their regions may outlive them
	}
	a.Start, a.End = (a.Start+page-1)&^(page-1), a.End&^(page-1)
	if a.Start >= a.End {
		return none, nil
	}
	all, err := p.by.mem.mappings(a.Start, a.End)
	if err != nil {
		return none, nil //nolint:nilerr // the registration reports what is not mapped
	}
	x := p.by.process
	x.mu.Lock()
	defer x.mu.Unlock()
	part, ok := x.next(all, page)
	if !ok {
		return none, nil
	}
	length := int64(part.to - part.from)
	fd, file, s, err := p.newShare(length)
	if err != nil {
		if !p.unsharedLogged {
			p.unsharedLogged = true
			p.c.s.log.Info("verbs: memory is not shared", "pid", p.c.cred.Pid, "reason", err)
		}
		return none, nil
	}
	s.regions[p.c] = 0
	x.shares[file] = s
	r := answer(uverbs.Share{From: part.from, Length: uint64(length), Number: s.number})
	r.fds = []int{fd}
	return r, nil
}

// newShare makes a share, and charges the client for it.
func (p *program) newShare(length int64) (fd int, file inode, s *share, err error) {
	if err := p.c.objects.reserve("share", kindShare, length, 0); err != nil {
		return -1, file, nil, err
	}
	s = &share{number: p.c.s.processes.next(), regions: make(map[*client]int)}
	fd, s.bytes, err = newMemory(fmt.Sprintf("%s%d", uverbs.ShareName, s.number), int(length))
	if err == nil {
		var st unix.Stat_t
		if err = unix.Fstat(fd, &st); err == nil {
			return fd, inode{st.Dev, st.Ino}, s, nil
		}
		err = errors.Join(err, unix.Close(fd), ring.Unmap(s.bytes))
	}
	p.c.objects.giveBack(kindShare, length, 0)
	return -1, file, nil, err
}

// unshare executes the command UnshareMemory: it ends one share that the process no longer needs,
// and returns the share's number; 0 means that there is none. The library then makes the pages
// private again. A share can end when there is no region over it, and when the NIC accesses no part
// of it by /proc/PID/mem.
//
// If a.Closing is set, the library is closing the connection of this client, and regions of this
// client do not count. Until the connection has ended, the NIC may use these regions: the share
// stays mapped, and the client charged.
func (p *program) unshare(a uverbs.UnshareArgs) (result, error) {
	x, closing := p.by.process, a.Closing != 0
	x.mu.Lock()
	defer x.mu.Unlock()
	ordered := slices.SortedFunc(maps.Keys(x.shares), func(a, b inode) int { return cmp.Compare(x.shares[a].number, x.shares[b].number) })
	for _, file := range ordered {
		s := x.shares[file]
		own := s.regions[p.c]
		if s.used() > own || own > 0 && !closing || p.overlapped(file, closing) {
			continue
		}
		delete(x.shares, file)
		for c := range s.regions {
			if c != p.c || own == 0 {
				c.objects.giveBack(kindShare, int64(len(s.bytes)), 0)
			}
		}
		if own > 0 {
			p.unshared = append(p.unshared, s)
		} else if err := ring.Unmap(s.bytes); err != nil {
			return result{}, err
		}
		return answer(uverbs.Unshare{Number: s.number}), nil
	}
	return answer(uverbs.Unshare{}), nil
}

// overlapped reports whether the program has mapped a share (file) at addresses of a region that
// the NIC accesses by /proc/PID/mem. If closing is true, the regions of client p.c do not count.
func (p *program) overlapped(file inode, closing bool) bool {
	if len(p.by.process.far) == 0 {
		return false
	}
	for _, x := range p.by.mem.mappingsOf(file) {
		for r := range p.by.process.far {
			if closing && r.of == p.c {
				continue
			}
			if slices.ContainsFunc(r.far, addresses{x.from, x.to}.overlaps) {
				return true
			}
		}
	}
	return false
}

// closeShares ends the client's use of the process's memory. It is called when all regions of the
// client have ended.
func (p *program) closeShares() error {
	errs := []error{p.c.s.processes.leave(p.self.process, p.c)}
	for _, s := range p.unshared {
		errs = append(errs, ring.Unmap(s.bytes))
	}
	return errors.Join(errs...)
}

// sharedView is access to memory of a program of which a part is shared.
//
// Its methods are called with exclusive use of the engine. The program may change the memory at the
// same time, as it may with a NIC of hardware.
type sharedView struct {
	parts []sharedPart // of consecutive addresses
	far   mem.Far      // access to memory that is not shared
}

// sharedPart is the memory of one mapping of the program: n bytes from address `at` on. bytes is
// where the daemon has mapped this memory; nil means that it is not shared.
type sharedPart struct {
	at, n uint64
	bytes []byte
}

var _ mem.Far = (*sharedView)(nil)

// copy copies p to address `at` of the program if write is set, else from there to p. It reports
// success: false means that a byte is in none of the parts, or that access by v.far has failed.
func (v *sharedView) copy(p []byte, at uint64, write bool) bool {
	for i := range v.parts {
		part := &v.parts[i]
		off := at - part.at
		if off >= part.n {
			continue
		}
		n := min(uint64(len(p)), part.n-off)
		switch {
		case part.bytes == nil && write:
			if !v.far.Write(p[:n], at) {
				return false
			}
		case part.bytes == nil:
			if !v.far.Read(p[:n], at) {
				return false
			}
		case write:
			copy(part.bytes[off:], p[:n])
		default:
			copy(p[:n], part.bytes[off:])
		}
		if p, at = p[n:], at+n; len(p) == 0 {
			return true
		}
	}
	return len(p) == 0
}

func (v *sharedView) Read(p []byte, at uint64) bool { return v.copy(p, at, false) }

func (v *sharedView) Write(p []byte, at uint64) bool { return v.copy(p, at, true) }
