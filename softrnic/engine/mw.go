package engine

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// MW is a memory window. Queue pairs bind it; see verbs.MW.
type MW struct {
	e     *Engine
	w     *mem.Window
	owner *Owner
	dead  bool
}

// AllocMW makes a window that is not bound. It counts against the limit Limits.MRs.
func (e *Engine) AllocMW(pd *PD) (*MW, error) {
	if err := alive("alloc MW", pd.dead); err != nil {
		return nil, err
	}
	w, err := e.Tables.env.Mem.AllocWindow(pd.num)
	if err != nil {
		return nil, err
	}
	mw := &MW{e: e, w: w}
	e.Tables.mws[mw] = struct{}{}
	return mw, nil
}

// MakeType1 makes m, which was just allocated, a window of type 1; see mem.Window for the types.
func (m *MW) MakeType1() { m.w.MakeType1() }

// RKey returns the key of the last bind.
func (m *MW) RKey() (uint32, error) {
	if err := alive("query MW", m.dead); err != nil {
		return 0, err
	}
	return m.w.RKey(), nil
}

// Key returns the key of the last bind, as RKey does, also for a deallocated window.
func (m *MW) Key() uint32 { return m.w.RKey() }

// Dealloc ends the window, whether it is bound or not.
func (m *MW) Dealloc() error {
	if err := alive("dealloc MW", m.dead); err != nil {
		return err
	}
	if err := m.e.Tables.env.Mem.DeallocWindow(m.w); err != nil {
		return err
	}
	m.dead = true
	delete(m.e.Tables.mws, m)
	return nil
}

// DM is a piece of device memory.
type DM struct {
	e    *Engine
	buf  []byte
	refs int // number of memory regions in this piece
	dead bool
}

// AllocDM allocates length bytes of device memory. It fails with ErrLimit if fewer are left.
func (e *Engine) AllocDM(length int) (*DM, error) {
	const op = "alloc DM"
	if err := e.Tables.running(op); err != nil {
		return nil, err
	}
	switch left := e.cfg.Limits.DeviceMemory - e.Tables.dmUsed; {
	case length <= 0:
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "length %d; give at least one byte", length)
	case length > left:
		return nil, verbs.Errorf(op, verbs.ErrLimit, "%d bytes; %d of %d are left", length, left, e.cfg.Limits.DeviceMemory)
	}
	d := &DM{e: e, buf: make([]byte, length)}
	e.Tables.dmUsed += length
	e.Tables.dms[d] = struct{}{}
	return d, nil
}

func (d *DM) Len() int { return len(d.buf) }

// ReadAt copies len(p) bytes of the device memory from offset `off` on to p.
func (d *DM) ReadAt(p []byte, off int) error {
	b, err := d.span("read DM", off, len(p))
	if err == nil {
		copy(p, b)
	}
	return err
}

// WriteAt copies p to offset `off`.
func (d *DM) WriteAt(p []byte, off int) error {
	b, err := d.span("write DM", off, len(p))
	if err == nil {
		copy(b, p)
	}
	return err
}

func (d *DM) span(op string, off, n int) ([]byte, error) {
	if err := alive(op, d.dead); err != nil {
		return nil, err
	}
	if off < 0 || n < 0 || n > len(d.buf) || off > len(d.buf)-n {
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "bytes [%d,+%d) of a device memory of %d", off, n, len(d.buf))
	}
	return d.buf[off : off+n : off+n], nil
}

// RegDM registers a part of device memory as a zero-based region.
func (e *Engine) RegDM(pd *PD, d *DM, off, length int, access verbs.Access) (*MR, error) {
	const op = "reg DM"
	if err := alive(op, pd.dead || d.dead); err != nil {
		return nil, err
	}
	b, err := d.span(op, off, length)
	if err != nil {
		return nil, err
	}
	mr, err := pd.newMR(e.Tables.env.Mem.RegZero(pd.num, b, access))
	if err == nil {
		mr.dm = d
		d.refs++
	}
	return mr, err
}

// Free returns the memory to the NIC. It fails with ErrBusy while a region of it exists.
func (d *DM) Free() error {
	const op = "free DM"
	if err := alive(op, d.dead); err != nil {
		return err
	}
	if d.refs > 0 {
		return verbs.Errorf(op, verbs.ErrBusy, "deregister its %d regions first", d.refs)
	}
	d.dead = true
	d.e.Tables.dmUsed -= len(d.buf)
	delete(d.e.Tables.dms, d)
	return nil
}
