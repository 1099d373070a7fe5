package ipc

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

type pd struct {
	ctx *Context
	h   uint32
}

func (p *pd) Dealloc() error { return p.ctx.destroy(proto.OpDeallocPD, &p.h) }

// destroyed replaces the handle of an object that was destroyed. The daemon never gives this number
// to an object.
const destroyed = 0

// destroy destroys an object that has no shared memory.
func (c *Context) destroy(op proto.Op, h *uint32) error {
	n := atomic.LoadUint32(h)
	if n == destroyed {
		return verbs.Errorf(string(op), verbs.ErrClosed, "the object was destroyed")
	}
	err := c.session.call(op, proto.Handle{H: n}, nil)
	if verbs.Gone(err) == nil {
		atomic.StoreUint32(h, destroyed)
	}
	return err
}

// callMemory makes a call whose answer comes with memory of *length bytes, and maps the memory. If
// the memory cannot be mapped, for example because the program has no free descriptor, the calls in
// `made` destroy the objects that the daemon has made.
func (c *Context) callMemory(op proto.Op, args, out any, length *int, made ...undo) ([]byte, error) {
	fds, err := c.session.callFiles(op, args, out)
	defer ring.CloseFiles(fds...)
	if err != nil {
		return nil, err
	}
	var bytes []byte
	if len(fds) != 1 {
		err = fmt.Errorf("ipc: %s: %d memories instead of one; is this program out of file descriptors?", op, len(fds))
	} else {
		bytes, err = ring.Map(fds[0], *length)
	}
	if err == nil {
		return bytes, nil
	}
	for _, u := range made {
		err = errors.Join(err, c.session.call(u.op, proto.Handle{H: *u.h}, nil))
	}
	return nil, err
}

// undo is a call that destroys an object. h points to the handle of the object, which callMemory
// has decoded from the daemon's answer.
type undo struct {
	op proto.Op
	h  *uint32
}

// memory is memory that Alloc has allocated.
type memory struct {
	h     uint32
	bytes []byte
}

// Alloc allocates zeroed memory that RegMR can register, as a whole or in pieces, without a copy.
// The memory belongs to the program until Free or Close. Alloc touches all pages at once, so that
// they count as memory of the program. Otherwise the daemon would touch them first, on behalf of
// peers, and the pages would count as memory of the daemon.
func (c *Context) Alloc(length int) ([]byte, error) {
	var h proto.Handle
	bytes, err := c.callMemory(proto.OpAlloc, proto.Alloc{Length: length}, &h, &length, undo{proto.OpFree, &h.H})
	if err != nil {
		return nil, err
	}
	m := &memory{h: h.H, bytes: bytes}
	c.maps.add(m)
	if err := ring.Populate(bytes); err != nil {
		return nil, errors.Join(err, c.Free(bytes))
	}
	return bytes[:length:length], nil
}

// Free frees memory of Alloc. It fails with ErrBusy while the memory has regions. Afterwards the
// bytes must not be used.
func (c *Context) Free(b []byte) error {
	m, off := c.maps.memoryOf(b)
	if m == nil || off != 0 || len(b) != len(m.bytes) {
		return verbs.Errorf("free", verbs.ErrInvalid, "the bytes are not the whole memory of one Alloc")
	}
	if err := c.session.call(proto.OpFree, proto.Handle{H: m.h}, nil); err != nil {
		return err
	}
	c.maps.drop(m)
	return ring.Unmap(m.bytes)
}

// RegMR registers buf, which must be memory of Alloc, or new memory if buf is nil. The NIC cannot
// reach other memory of this process: RegMR refuses it with ErrNotSupported.
func (p *pd) RegMR(buf []byte, length int, access verbs.Access) (verbs.MR, error) {
	return p.register("reg MR", buf, length, proto.RegMR{PD: p.h, Length: length, Access: access})
}

// AllocFastMR makes a region for fast registration. buf is as in RegMR.
func (p *pd) AllocFastMR(buf []byte, length int) (verbs.MR, error) {
	return p.register("alloc fast MR", buf, length, proto.RegMR{PD: p.h, Length: length, Fast: true})
}

func (p *pd) register(op string, buf []byte, length int, a proto.RegMR) (verbs.MR, error) {
	var r proto.MR
	switch {
	case buf == nil && length <= 0:
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "length %d; give at least one byte", length)
	case buf == nil:
		bytes, err := p.ctx.callMemory(proto.OpRegMR, a, &r, &length, undo{proto.OpDeregMR, &r.H})
		if err != nil {
			return nil, err
		}
		m := p.newMR(r, bytes, true)
		if err := ring.Populate(bytes); err != nil {
			return nil, errors.Join(err, m.Dereg())
		}
		return m, nil
	case length != 0 && length != len(buf):
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "length %d of a buffer of %d bytes", length, len(buf))
	case len(buf) == 0:
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "a region needs at least one byte")
	}
	m, off := p.ctx.maps.memoryOf(buf)
	if m == nil {
		return nil, verbs.Errorf(op, verbs.ErrNotSupported, "the NIC cannot reach memory of this process; pass nil, or memory of Context.Alloc")
	}
	a.Memory, a.Offset, a.Length = m.h, off, len(buf)
	if err := p.ctx.session.call(proto.OpRegMR, a, &r); err != nil {
		return nil, err
	}
	return p.newMR(r, buf[:len(buf):len(buf)], false), nil
}

// mr is a region. bytes is the mapped memory of the region; nil if the region is closed, or is one
// of device memory.
type mr struct {
	pd  *pd
	r   proto.MR
	own bool // the region owns its memory, which is unmapped with it

	mu     sync.RWMutex // guards the fields below, because bytes can be unmapped
	bytes  []byte
	closed bool
}

func (p *pd) newMR(r proto.MR, bytes []byte, own bool) *mr {
	m := &mr{pd: p, r: r, bytes: bytes, own: own}
	p.ctx.maps.remember(m)
	return m
}

// unmap is called when the context is closed.
func (m *mr) unmap() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.release()
}

// release unmaps the region's memory if the region owns it. The caller holds mu.
func (m *mr) release() {
	m.closed = true
	if m.own {
		_ = ring.Unmap(m.bytes) // cannot fail: it is mapped
	}
	m.bytes = nil
}

func (m *mr) Addr() uint64 { return m.r.Addr }
func (m *mr) Len() int     { return m.r.Length }
func (m *mr) LKey() uint32 { return m.r.LKey }
func (m *mr) RKey() uint32 { return m.r.RKey }

func (m *mr) SGE(off, n int) verbs.SGE {
	return verbs.SGE{Addr: m.r.Addr + uint64(off), Length: uint32(min(uint64(n), math.MaxUint32)), LKey: m.r.LKey}
}

// span checks that the region exists, and that it contains n bytes at offset off. The caller holds
// mu.
func (m *mr) span(op string, off, n int) error {
	if m.closed || !m.pd.ctx.alive(m.r.Incarnation) {
		return verbs.Errorf(op, verbs.ErrClosed, "the region was deregistered, or its NIC went down")
	}
	if off < 0 || n > m.r.Length || off > m.r.Length-n {
		return verbs.Errorf(op, verbs.ErrInvalid, "bytes [%d,+%d) of a region of %d", off, n, m.r.Length)
	}
	return nil
}

func (m *mr) ReadAt(p []byte, off int) error  { return m.copy("read mr", p, off, false) }
func (m *mr) WriteAt(p []byte, off int) error { return m.copy("write mr", p, off, true) }

// copy copies p into the region at offset off if write is set, else from there to p.
func (m *mr) copy(op string, p []byte, off int, write bool) error {
	m.mu.RLock()
	defer m.mu.RUnlock()
	if err := m.span(op, off, len(p)); err != nil {
		return err
	}
	switch {
	case m.bytes == nil:
		return m.pd.ctx.access(proto.OpAccessMR, m.r.H, p, off, write)
	case write:
		copy(m.bytes[off:], p)
	default:
		copy(p, m.bytes[off:])
	}
	return nil
}

// access reads or writes device memory, which is not mapped, by requests to the daemon for at most
// proto.MaxData bytes each.
func (c *Context) access(op proto.Op, h uint32, p []byte, off int, write bool) error {
	for {
		n := min(len(p), proto.MaxData)
		a := proto.Access{H: h, Offset: off, Write: write}
		var d proto.Data
		var err error
		if write {
			a.Data = p[:n]
			err = c.session.call(op, a, nil)
		} else {
			a.Length = n
			err = c.session.call(op, a, &d)
			copy(p[:n], d.Data)
		}
		if p, off = p[n:], off+n; err != nil || len(p) == 0 {
			return err
		}
	}
}

func (m *mr) Load64(off int) (uint64, error) {
	const op = "load mr"
	m.mu.RLock()
	defer m.mu.RUnlock()
	if off%8 != 0 {
		return 0, verbs.Errorf(op, verbs.ErrInvalid, "offset %d is not a multiple of 8", off)
	}
	if err := m.span(op, off, 8); err != nil {
		return 0, err
	}
	if m.bytes != nil {
		if p := unsafe.Pointer(&m.bytes[off]); uintptr(p)%8 == 0 {
			return atomic.LoadUint64((*uint64)(p)), nil
		}
	}
	return m.pd.ctx.word(op, ring.Access{MR: m.r.H, Offset: int64(off)})
}

// Store64 writes an aligned word. The daemon executes it between two accesses of the NIC, so that
// no remote atomic is lost.
func (m *mr) Store64(off int, v uint64) error {
	const op = "store mr"
	m.mu.RLock()
	defer m.mu.RUnlock()
	if off%8 != 0 {
		return verbs.Errorf(op, verbs.ErrInvalid, "offset %d is not a multiple of 8", off)
	}
	if err := m.span(op, off, 8); err != nil {
		return err
	}
	_, err := m.pd.ctx.word(op, ring.Access{Store: true, MR: m.r.H, Offset: int64(off), Value: v})
	return err
}

func (m *mr) Rereg(access verbs.Access) error {
	const op = "rereg MR"
	m.mu.RLock()
	defer m.mu.RUnlock()
	if m.closed {
		return verbs.Errorf(op, verbs.ErrClosed, "the region was deregistered")
	}
	return m.pd.ctx.session.call(proto.OpReregMR, proto.ReregMR{H: m.r.H, Access: access}, nil)
}

func (m *mr) Dereg() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return verbs.Errorf("dereg MR", verbs.ErrClosed, "the region was deregistered")
	}
	err := m.pd.ctx.session.call(proto.OpDeregMR, proto.Handle{H: m.r.H}, nil)
	if verbs.Gone(err) == nil {
		m.release()
		m.pd.ctx.maps.forget(m)
	}
	return err
}

type mw struct {
	ctx *Context
	h   uint32
}

func (p *pd) AllocMW() (verbs.MW, error) {
	var h proto.Handle
	if err := p.ctx.session.call(proto.OpAllocMW, proto.Handle{H: p.h}, &h); err != nil {
		return nil, err
	}
	return &mw{ctx: p.ctx, h: h.H}, nil
}

func (m *mw) RKey() (uint32, error) {
	h := atomic.LoadUint32(&m.h)
	if h == destroyed {
		return 0, verbs.Errorf("query MW", verbs.ErrClosed, "the object was destroyed")
	}
	var k proto.Key
	err := m.ctx.session.call(proto.OpQueryMW, proto.Handle{H: h}, &k)
	return k.RKey, err
}

func (m *mw) Dealloc() error { return m.ctx.destroy(proto.OpDeallocMW, &m.h) }

type dm struct {
	ctx    *Context
	h      uint32
	length int
}

func (c *Context) AllocDM(length int) (verbs.DM, error) {
	var h proto.Handle
	if err := c.session.call(proto.OpAllocDM, proto.Alloc{Length: length}, &h); err != nil {
		return nil, err
	}
	return &dm{ctx: c, h: h.H, length: length}, nil
}

func (p *pd) RegDM(d verbs.DM, off, length int, access verbs.Access) (verbs.MR, error) {
	o, ok := d.(*dm)
	if !ok || o == nil || o.ctx != p.ctx {
		return nil, verbs.Errorf("reg DM", verbs.ErrInvalid, "the device memory was not allocated by this context")
	}
	var r proto.MR
	if err := p.ctx.session.call(proto.OpRegDM, proto.RegMR{PD: p.h, Memory: o.h, Offset: off, Length: length, Access: access}, &r); err != nil {
		return nil, err
	}
	return p.newMR(r, nil, false), nil
}

func (d *dm) Len() int { return d.length }

// ReadAt reads the memory in pieces of 32 KiB. The NIC makes no access while a piece is copied.
func (d *dm) ReadAt(p []byte, off int) error { return d.access(p, off, false) }

// WriteAt writes the memory in pieces of 32 KiB. The NIC makes no access while a piece is copied.
func (d *dm) WriteAt(p []byte, off int) error { return d.access(p, off, true) }

func (d *dm) access(p []byte, off int, write bool) error {
	h := atomic.LoadUint32(&d.h)
	switch {
	case h == destroyed:
		return verbs.Errorf("access DM", verbs.ErrClosed, "the object was destroyed")
	case off < 0 || len(p) > d.length || off > d.length-len(p):
		return verbs.Errorf("access DM", verbs.ErrInvalid, "bytes [%d,+%d) of a device memory of %d", off, len(p), d.length)
	}
	return d.ctx.access(proto.OpAccessDM, h, p, off, write)
}

func (d *dm) Free() error { return d.ctx.destroy(proto.OpFreeDM, &d.h) }
