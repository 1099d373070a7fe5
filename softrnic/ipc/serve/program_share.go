package serve

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// share is memory of a program that the daemon has mapped, too: a sealed memory file, which the
// daemon makes and with which the preloaded library replaces private pages of the program. The NIC
// accesses these pages without system calls.
//
// A share exists while a client is charged for it. A client is charged from when it asks for the
// share, or first registers a part of it, until the library ends the share (see unshare) or the
// client ends.
type share struct {
	number  uint32
	bytes   []byte
	regions map[*client]int // number of regions over it, by client that is charged for it
}

// unused reports whether there is no region over the share.
func (s *share) unused() bool {
	for _, n := range s.regions {
		if n > 0 {
			return false
		}
	}
	return true
}

// process has the memory of a program's process. Each device that the process has open is a client.
//
// The library sends no command that concerns memory while it replaces pages, on any connection of
// the process: the kernel then refuses the daemon's writes to these pages by /proc/PID/mem.
type process struct {
	clients int // guarded by processes.mu

	mu     sync.Mutex // guards the fields below
	shares map[inode]*share
	last   uint32 // number of the newest share
	// far has the regions whose memory the NIC accesses by /proc/PID/mem.
	far map[*programRegion]struct{}
}

// processKey identifies a process. The daemon sees all processes of other PID namespaces as PID 0; only their
// tokens differ.
type processKey struct {
	pid   int32
	user  uint32
	token [uverbs.TokenLen]byte
}

func (c *client) processKey() processKey { return processKey{c.cred.Pid, c.cred.Uid, c.token} }

// processes has the processes of all clients that are unmodified programs.
type processes struct {
	mu  sync.Mutex
	all map[processKey]*process
}

// enter returns the process of a new client; leave ends the client's use of it.
func (x *processes) enter(k processKey) *process {
	x.mu.Lock()
	defer x.mu.Unlock()
	p := x.all[k]
	if p == nil {
		p = &process{shares: make(map[inode]*share), far: make(map[*programRegion]struct{})}
		if x.all == nil {
			x.all = make(map[processKey]*process)
		}
		x.all[k] = p
	}
	p.clients++
	return p
}

// leave is called when all regions of the client have ended. It unmaps the shares for which no other
// client is charged.
func (x *processes) leave(p *process, c *client) error {
	x.mu.Lock()
	defer x.mu.Unlock()
	if k := c.processKey(); x.all[k] == p {
		if p.clients--; p.clients == 0 {
			delete(x.all, k)
		}
	}
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

// programRegion is a region of a program's memory.
type programRegion struct {
	mr verbs.MR
	of *client
	addresses
	shares []*share // with the memory of the region; none: the NIC accesses it by /proc/PID/mem
}

// register sets how the NIC accesses the memory of a new region, whose mappings are given: as shares
// if all of it is shared and the client's quota allows it, else by far.
func (p *process) register(r *programRegion, all []mapping, far mem.Far) mem.Far {
	p.mu.Lock()
	defer p.mu.Unlock()
	view, shares := p.view(all)
	for i, s := range shares {
		if _, charged := s.regions[r.of]; charged {
			continue
		}
		if err := r.of.objects.reserve("reg MR", kindMemory, int64(len(s.bytes)), 0); err != nil {
			view, shares = nil, shares[:i]
			break
		}
		s.regions[r.of] = 0
	}
	if view == nil {
		p.far[r] = struct{}{}
		return far
	}
	for _, s := range shares {
		s.regions[r.of]++
	}
	r.shares = shares
	return view
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

// view returns access to mappings that are all shared, and their shares; nil if one is not.
func (p *process) view(all []mapping) (v *sharedView, shares []*share) {
	v = &sharedView{}
	for _, x := range all {
		s := p.shares[x.file]
		// A program may map the file with an offset, and further than its end.
		if s == nil || x.rights[3] != 's' || x.offset > uint64(len(s.bytes)) || x.to-x.from > uint64(len(s.bytes))-x.offset {
			return nil, nil
		}
		v.parts = append(v.parts, sharedPart{x.from, s.bytes[x.offset : x.offset+x.to-x.from]})
		if !slices.Contains(shares, s) {
			shares = append(shares, s)
		}
	}
	return v, shares
}

// next returns the first part of a page range that the library may replace by a share. ok is false
// if there is none, or if not all of the range can be shared: memory of files and of stacks stays
// what it is, and so do pages that the NIC accesses by /proc/PID/mem.
func (p *process) next(all []mapping) (part addresses, ok bool) {
	for _, x := range all {
		if _, shared := p.shares[x.file]; shared {
			continue
		}
		anonymous := x.file == inode{} && (x.name == "" || x.name == "[heap]" || len(x.name) > 6 && x.name[:6] == "[anon:")
		if !anonymous || x.rights != "rw-p" {
			return part, false
		}
		for r := range p.far {
			if r.from < x.to && x.from < r.to {
				return part, false
			}
		}
		if !ok {
			part, ok = addresses{x.from, x.to}, true
		}
	}
	return part, ok
}

// share makes a share for a part of the memory that the program is about to register. The library
// asks again until all of the memory is shared or cannot be: then the answer has no descriptor.
func (p *program) share(a uverbs.ShareArgs) (result, error) {
	page := uint64(os.Getpagesize())
	if a.Start >= a.End || a.End > math.MaxInt64-page {
		return result{}, unix.EINVAL
	}
	none := answer(uverbs.Share{})
	all, err := p.mem.mappings(a.Start&^(page-1), (a.End+page-1)&^(page-1))
	if err != nil {
		return none, nil //nolint:nilerr // the registration reports what is not mapped
	}
	x := p.process
	x.mu.Lock()
	defer x.mu.Unlock()
	part, ok := x.next(all)
	if !ok {
		return none, nil
	}
	length := int64(part.to - part.from)
	if err := p.c.objects.reserve("share", kindMemory, length, 0); err != nil {
		p.c.s.log.Info("verbs: memory is not shared", "pid", p.c.cred.Pid, "reason", err)
		return none, nil
	}
	fd, file, s, err := newShare(x.last+1, int(length))
	if err != nil {
		p.c.objects.giveBack(kindMemory, length, 0)
		p.c.s.log.Info("verbs: memory is not shared", "pid", p.c.cred.Pid, "reason", err)
		return none, nil
	}
	x.last++
	s.regions[p.c] = 0
	x.shares[file] = s
	r := answer(uverbs.Share{From: part.from, Length: uint64(length), Number: s.number})
	r.fds = []int{fd}
	return r, nil
}

// newShare makes the memory of a share.
func newShare(number uint32, length int) (fd int, file inode, s *share, err error) {
	fd, bytes, err := newMemory(fmt.Sprintf("%s%d", uverbs.ShareName, number), length)
	if err != nil {
		return -1, file, nil, err
	}
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return -1, file, nil, errors.Join(err, unix.Close(fd), ring.Unmap(bytes))
	}
	return fd, inode{st.Dev, st.Ino}, &share{number: number, bytes: bytes, regions: make(map[*client]int)}, nil
}

// unshare ends one share that the process no longer needs, and returns its number; 0 means that
// there is none. The library makes its pages private again. A share ends when no region is over it
// and none that the NIC accesses by /proc/PID/mem overlaps it. With a.Closing, regions of this client
// do not count, because the library is closing the connection.
func (p *program) unshare(a uverbs.UnshareArgs) (result, error) {
	x := p.process
	x.mu.Lock()
	defer x.mu.Unlock()
	ordered := slices.SortedFunc(maps.Keys(x.shares), func(a, b inode) int { return cmp.Compare(x.shares[a].number, x.shares[b].number) })
	for _, file := range ordered {
		s := x.shares[file]
		mine := a.Closing != 0 && len(s.regions) == 1 && s.regions[p.c] > 0
		if !mine && !s.unused() || p.overlapped(file, a.Closing != 0) {
			continue
		}
		delete(x.shares, file)
		for c := range s.regions {
			c.objects.giveBack(kindMemory, int64(len(s.bytes)), 0)
		}
		if mine {
			p.unshared = append(p.unshared, s)
		} else if err := ring.Unmap(s.bytes); err != nil {
			return result{}, err
		}
		return answer(uverbs.Unshare{Number: s.number}), nil
	}
	return answer(uverbs.Unshare{}), nil
}

// overlapped reports whether the NIC accesses a part of a file that the program has mapped by
// /proc/PID/mem. If closing is true, regions of this client do not count.
func (p *program) overlapped(file inode, closing bool) bool {
	for r := range p.process.far {
		if closing && r.of == p.c {
			continue
		}
		all, _ := p.mem.mappings(r.from, r.to) // as much as is mapped
		if slices.ContainsFunc(all, func(x mapping) bool { return x.file == file }) {
			return true
		}
	}
	return false
}

// closeShares ends the program's use of its process's memory. All its regions have ended.
func (p *program) closeShares() error {
	errs := []error{p.c.s.processes.leave(p.process, p.c)}
	for _, s := range p.unshared {
		errs = append(errs, ring.Unmap(s.bytes))
	}
	return errors.Join(errs...)
}

// sharedView is access to memory of a program that is shared.
//
// Its methods are called with exclusive use of the engine. The program may change the memory at the
// same time, as it may with a NIC of hardware.
type sharedView struct{ parts []sharedPart }

// sharedPart is the memory of a mapping; at is its address in the program. The parts of a view have
// consecutive addresses.
type sharedPart struct {
	at    uint64
	bytes []byte
}

var _ mem.Far = (*sharedView)(nil)

// copy copies p to the address `at` of the program if write is set, else from there to p. It reports whether
// the view has all these bytes.
func (v *sharedView) copy(p []byte, at uint64, write bool) bool {
	for i := range v.parts {
		off := at - v.parts[i].at
		if off >= uint64(len(v.parts[i].bytes)) {
			continue
		}
		n := 0
		if write {
			n = copy(v.parts[i].bytes[off:], p)
		} else {
			n = copy(p, v.parts[i].bytes[off:])
		}
		p, at = p[n:], at+uint64(n)
		if len(p) == 0 {
			return true
		}
	}
	return len(p) == 0
}

// Read copies len(p) bytes at address at into p, and reports success.
func (v *sharedView) Read(p []byte, at uint64) bool { return v.copy(p, at, false) }

// Write copies p to address at, and reports success.
func (v *sharedView) Write(p []byte, at uint64) bool { return v.copy(p, at, true) }

// Load64 reads the word at address at.
func (v *sharedView) Load64(at uint64) (uint64, bool) {
	var word [8]byte
	ok := v.Read(word[:], at)
	return binary.NativeEndian.Uint64(word[:]), ok
}

// Store64 writes the word at address at.
func (v *sharedView) Store64(at, x uint64) bool {
	var word [8]byte
	binary.NativeEndian.PutUint64(word[:], x)
	return v.Write(word[:], at)
}
