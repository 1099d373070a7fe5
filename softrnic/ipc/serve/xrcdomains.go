package serve

import (
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// xrcDomains has the XRC domains that unmodified programs have open, and their targets. Both belong to the
// server and not to a program: a domain lasts as long as any program has it open, and a target as long as any
// program has a handle of it.
type xrcDomains struct {
	base *verbsengine.Context // makes the domains and targets
	pump *pump

	mu      sync.Mutex // guards the fields below, and the fields refs of domains and targets
	byFile  map[inode]*xrcDomain
	targets map[wire.QPN]*xrcTarget
}

func (s *xrcDomains) open(base *verbsengine.Context, p *pump) {
	s.base, s.pump, s.byFile, s.targets = base, p, make(map[inode]*xrcDomain), make(map[wire.QPN]*xrcTarget)
}

// xrcDomain is an XRC domain. Programs of the host share it by a file, or it is private to the program that has
// opened it.
type xrcDomain struct {
	x    verbs.XRCD
	file inode // the zero value: private
	// held is a descriptor of the file, so that no other file gets its number; -1: private.
	held int
	// table is the memory table of the NIC's incarnation in which the domain was made.
	table *mem.Table
	refs  int // handles of programs
}

// xrcTarget is a queue pair of type XRCTarget. Several programs may have it open: each of them may change it.
type xrcTarget struct {
	domain *xrcDomain
	qp     verbs.QP
	made   uverbs.QPArgs
	refs   int // handles of programs

	mu   sync.Mutex // held while a program changes or queries the queue pair
	attr uverbs.ModifyQPArgs
}

// enter returns the domain that a file names, and makes it if flags has O_CREAT. file is a descriptor that
// stays the caller's; -1 makes a private domain. The errors are those of a kernel: EAGAIN if there is no domain
// and O_CREAT is not set, EINVAL if there is one and O_EXCL is set.
func (s *xrcDomains) enter(file int, flags uint32) (*xrcDomain, error) {
	const op = "open XRC domain"
	var at inode
	if file >= 0 {
		var err error
		if at, err = inodeOf(file); err != nil {
			return nil, err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var d *xrcDomain
	if file >= 0 {
		d = s.living(at)
		switch {
		case d == nil && flags&unix.O_CREAT == 0:
			return nil, fmt.Errorf("%s: no program has a domain of this file open, and the flags have no O_CREAT: %w", op, unix.EAGAIN)
		case d != nil && flags&unix.O_EXCL != 0:
			return nil, refuse(op, "a program has a domain of this file open, and the flags have O_EXCL")
		}
	}
	if d == nil {
		var err error
		if d, err = s.create(file, at); err != nil {
			return nil, err
		}
	}
	d.refs++
	return d, nil
}

// living returns the domain of a file, or nil if there is none, or if it has ended with the NIC.
func (s *xrcDomains) living(at inode) *xrcDomain {
	if d := s.byFile[at]; d != nil && s.lives(d) {
		return d
	}
	return nil
}

// lives reports whether a domain has not ended with the NIC.
func (s *xrcDomains) lives(d *xrcDomain) bool { return d.table == s.incarnation() }

func (s *xrcDomains) incarnation() (table *mem.Table) {
	s.pump.with(func(e *engine.Engine) { table = e.Tables.Mem() })
	return table
}

func (s *xrcDomains) create(file int, at inode) (*xrcDomain, error) {
	d := &xrcDomain{file: at, held: -1, table: s.incarnation()}
	x, err := s.base.AllocXRCD()
	if err != nil {
		return nil, err
	}
	d.x = x
	if file < 0 {
		return d, nil
	}
	if d.held, err = pinned(file); err != nil {
		return nil, errors.Join(err, x.Dealloc())
	}
	s.byFile[at] = d
	return d, nil
}

// pinned returns a descriptor that keeps the file of another one in existence. It does not keep the program's
// open file: what ends with that, such as a lock, ends when the program closes it. It asks no file server. Of the
// two ways the first needs /proc, and the second a system call that containers may forbid.
func pinned(file int) (int, error) {
	fd, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", file), unix.O_PATH|unix.O_CLOEXEC, 0)
	if err != nil {
		fd, err = unix.OpenTree(file, "", unix.OPEN_TREE_CLOEXEC|unix.AT_EMPTY_PATH)
	}
	if err != nil {
		return -1, limitError("open XRC domain", "the file cannot be kept: %v", err)
	}
	return fd, nil
}

// leave ends a handle of a domain, and with the last one the domain.
func (s *xrcDomains) leave(d *xrcDomain) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if d.refs--; d.refs > 0 {
		return nil
	}
	if s.byFile[d.file] == d {
		delete(s.byFile, d.file)
	}
	err := verbs.Gone(d.x.Dealloc())
	if d.held >= 0 {
		err = errors.Join(err, unix.Close(d.held))
	}
	return err
}

// newTarget makes a target with one handle.
func (s *xrcDomains) newTarget(d *xrcDomain, made uverbs.QPArgs) (*xrcTarget, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	qp, err := d.x.CreateTarget(verbs.QPInit{Type: verbs.XRCTarget})
	if err != nil {
		return nil, err
	}
	t := &xrcTarget{domain: d, qp: qp, made: made, refs: 1}
	s.targets[qp.QPN()] = t
	return t, nil
}

// openTarget returns a target of a domain, with one more handle.
func (s *xrcDomains) openTarget(d *xrcDomain, n wire.QPN) (*xrcTarget, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.lives(d) {
		return nil, verbs.Errorf("open QP", verbs.ErrClosed, "the domain has ended with the NIC; open it again")
	}
	t := s.targets[n]
	if t == nil || t.domain != d {
		return nil, refuse("open QP", "the domain has no target %#x", uint32(n))
	}
	t.refs++
	return t, nil
}

// closeTarget ends a handle of a target, and with the last one the target.
func (s *xrcDomains) closeTarget(t *xrcTarget) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t.refs--; t.refs > 0 {
		return nil
	}
	if n := t.qp.QPN(); s.targets[n] == t {
		delete(s.targets, n)
	}
	return verbs.Gone(t.qp.Destroy())
}

// targetHandle is a program's handle of a target: events of the target go to all of them.
type targetHandle struct {
	port   *port
	handle *owner
	qp     *engine.QP
}

// rememberTarget adds a handle of a target. The process of the first handle is shown as the owner of the queue
// pair. The caller has exclusive use of the engine, as in forgetTarget.
func (s *pump) rememberTarget(h targetHandle) {
	n := h.qp.Num()
	if s.targets[n] = append(s.targets[n], h); len(s.targets[n]) == 1 {
		h.qp.SetOwner(h.port.c.owner())
	}
}

// forgetTarget removes the handles of target n that `is` chooses.
func (s *pump) forgetTarget(n wire.QPN, is func(h targetHandle) bool) {
	var left []targetHandle
	for _, h := range s.targets[n] {
		if !is(h) {
			left = append(left, h)
		}
	}
	if left == nil {
		delete(s.targets, n)
		return
	}
	s.targets[n] = left
	left[0].qp.SetOwner(left[0].port.c.owner())
}
