package serve

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/uverbs"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// kin are the processes that use the device of a program: the process that has opened it, and children
// of fork, which have it from their parent as over a kernel. Objects belong to the device and not to a
// process: each process may use and destroy all of them, and they are charged to the program. Memory that
// a process registers is its own.
//
// A child connects by itself, so that answers to its commands and to those of its parent are apart. It also
// keeps the descriptor of its parent's connection, so that the device lasts as long as any of them.
type kin struct {
	mu sync.Mutex // held while a command is executed; guards the fields below
	// gone: the program has ended, and executes no further command.
	gone bool
	// memory has for each memory in use the number of its regions, and one more while its process is
	// connected.
	memory map[*programMemory]int

	// children are the processes that have the device from their parent, with the number of their
	// connections. Exclusive use of the engine guards them.
	children map[processKey]int
}

func newKin() kin {
	return kin{memory: make(map[*programMemory]int), children: make(map[processKey]int)}
}

// maxKin bounds the processes that use a device, with those that have ended and whose regions have not. The
// daemon has two descriptors of the memory of each.
const maxKin = 256

// caller is a process that uses the device of program `of`, by connection c.
type caller struct {
	c       *client
	of      *program
	mem     *programMemory
	process *process
	// sent are the descriptors that came with the command that is being executed; they are closed after it.
	sent []int
}

// errDeviceGone ends the connection of a child whose parent's device has ended.
var errDeviceGone = errors.New("the parent's device has ended")

// call executes a command of a process.
func (p *program) call(f programHandler, cmd uverbs.Command, by *caller) (result, error) {
	p.kin.mu.Lock()
	defer p.kin.mu.Unlock()
	if p.kin.gone {
		return result{}, errDeviceGone
	}
	p.by = by
	return f(p, cmd)
}

// has reports whether a process has the device from its parent. The caller has exclusive use of the
// engine.
func (k *kin) has(p processKey) bool { return k.children[p] > 0 }

// hold counts one more user of a memory. The caller executes a command, or is the first.
func (k *kin) hold(m *programMemory) { k.memory[m]++ }

// release is the inverse of hold. The last user closes the memory.
func (k *kin) release(m *programMemory) error {
	if k.memory[m]--; k.memory[m] > 0 {
		return nil
	}
	delete(k.memory, m)
	return m.close()
}

// closeMemory closes all memory. It is called when all regions have ended.
func (k *kin) closeMemory() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	var errs []error
	for m := range k.memory {
		errs = append(errs, m.close())
	}
	clear(k.memory)
	return errors.Join(errs...)
}

// dropped is called when a region has ended.
func (p *program) dropped(r *programRegion) {
	if r.pd == nil {
		return // of device memory
	}
	r.process.deregister(r)
	_ = p.kin.release(r.mem) // nothing depends on its descriptors any more
}

// leave is called when a process no longer uses the device: its connection has ended. With the process that
// has opened the device ends the program.
func (by *caller) leave() {
	p := by.of
	if by == p.self {
		p.c.s.programs.remove(p)
		p.kin.mu.Lock()
		p.kin.gone = true
		p.kin.mu.Unlock()
		return
	}
	key := by.c.processKey()
	p.with(func(*port) {
		if p.kin.children[key]--; p.kin.children[key] == 0 {
			delete(p.kin.children, key)
		}
	})
	p.kin.mu.Lock()
	defer p.kin.mu.Unlock()
	if p.kin.memory[by.mem] > 0 { // else the program has closed it
		_ = p.kin.release(by.mem)
	}
}

// attachChild lets a child of fork use the device of its parent. The last descriptor, which names the
// device, is closed here; the first two are of the child's memory.
func (c *client) attachChild(name string, fds []int) error {
	if len(fds) != uverbs.HelloChildFDs {
		return errors.Join(unix.EINVAL, closeAll(fds))
	}
	of, err := c.s.programs.of(fds[uverbs.HelloArea])
	if err = errors.Join(err, unix.Close(fds[uverbs.HelloArea])); err != nil {
		return errors.Join(err, closeAll(fds[:uverbs.HelloFDs]))
	}
	mem, err := newProgramMemory(fds[:uverbs.HelloFDs], c.cred.Uid, c.s.stuck)
	if err != nil {
		return err
	}
	c.rename(name)
	by := &caller{c: c, of: of, mem: mem, process: newProcess()}
	c.s.joins(c)
	of.kin.mu.Lock()
	defer of.kin.mu.Unlock()
	if of.kin.gone {
		return errors.Join(errDeviceGone, mem.close())
	}
	if len(of.kin.memory) >= maxKin {
		return errors.Join(limitError("attach", "the device has %d processes, with those that have ended and left regions", maxKin), mem.close())
	}
	of.kin.hold(mem)
	of.with(func(*port) { of.kin.children[c.processKey()]++ })
	c.as = by
	return c.put(uverbs.Answer{}, nil)
}

// joins notes that a client is a child of a program, which counts as one with it.
func (s *Server) joins(c *client) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.child = true
}

// programsAttached returns how many programs are attached. The caller holds mu.
func (s *Server) programsAttached() (n int) {
	for c := range s.clients {
		if !c.child {
			n++
		}
	}
	return n
}

// programs finds programs by the memory files of their rings, and has what they share.
type programs struct {
	xrc xrcDomains

	mu  sync.Mutex // guards all
	all map[inode]*program
}

// inodeOf returns which file a descriptor is of. It asks no file server, neither for the file system's
// attributes nor for the file's, because the server may be the program itself, and may not answer. The error
// is EACCES if a server lets only others see its files.
func inodeOf(fd int) (inode, error) {
	var st unix.Statx_t
	if err := unix.Statx(fd, "", unix.AT_EMPTY_PATH|unix.AT_STATX_DONT_SYNC, 0, &st); err != nil {
		return inode{}, err
	}
	if st.Ino == 0 { // FUSE of a user says only the device to others
		return inode{}, unix.EACCES
	}
	return inode{unix.Mkdev(st.Dev_major, st.Dev_minor), st.Ino}, nil
}

func (x *programs) add(p *program) error {
	file, err := inodeOf(p.queues.area.fd)
	if err != nil {
		return err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.all == nil {
		x.all = make(map[inode]*program)
	}
	x.all[file] = p
	return nil
}

func (x *programs) remove(p *program) {
	file, err := inodeOf(p.queues.area.fd)
	if err != nil {
		return // add has failed, too
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.all, file)
}

// of returns the program whose rings are in a file.
func (x *programs) of(fd int) (*program, error) {
	file, err := inodeOf(fd)
	if err != nil {
		return nil, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if p := x.all[file]; p != nil {
		return p, nil
	}
	return nil, &verbs.OpError{Op: "attach", Err: verbs.ErrAccess, Detail: "a descriptor is not that of a device"}
}
