package serve

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/binding"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// newMemory makes a sealed memory and maps it.
func newMemory(name string, length int) (fd int, bytes []byte, err error) {
	fd, err = ring.New(name, length)
	if err != nil {
		return -1, nil, limitError("memory", "%v", err)
	}
	bytes, err = ring.Map(fd, length)
	if err != nil {
		return -1, nil, errors.Join(limitError("memory", "%v", err), unix.Close(fd))
	}
	return fd, bytes, nil
}

func isClosed(err error) bool { return errors.Is(err, verbs.ErrClosed) }

// memory is what an application has mapped to register it. refs are its regions.
type memory struct {
	bytes []byte
	refs  int
}

// pdObject and so on are what handles stand for.
type (
	pdObject struct{ pd verbs.PD }
	mrObject struct {
		mr     verbs.MR
		memory *memory // nil: device memory, or shared
		fresh  bool    // the memory has no handle of its own
		shared *sharedRegion
	}
	mwObject struct{ mw verbs.MW }
	dmObject struct{ dm verbs.DM }
	ahObject struct{ ah verbs.AH }
)

// allocPD makes a protection domain.
func (c *client) allocPD(proto.None) (any, error) {
	if err := c.reserve("alloc PD", kindPD, 0, 0); err != nil {
		return nil, err
	}
	pd, err := c.ctx.AllocPD()
	if err != nil {
		c.giveBack(kindPD, 0, 0)
		return nil, err
	}
	return proto.Handle{H: c.put(&pdObject{pd})}, nil
}

func (c *client) deallocPD(a proto.Handle) (any, error) {
	o, err := get[*pdObject](c, "dealloc PD", a.H)
	if err != nil {
		return nil, err
	}
	if err = o.pd.Dealloc(); gone(err) {
		c.drop(a.H)
		c.giveBack(kindPD, 0, 0)
	}
	return nil, err
}

// alloc makes memory to be registered later, piece by piece.
func (c *client) alloc(a proto.Alloc) (any, []int, error) {
	m, fd, err := c.newMemory("alloc", a.Length)
	if err != nil {
		return nil, nil, err
	}
	return proto.Handle{H: c.put(m)}, []int{fd}, nil
}

func (c *client) newMemory(op string, length int) (*memory, int, error) {
	if length <= 0 {
		return nil, -1, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("length %d", length)}
	}
	if err := c.reserve(op, kindMemory, int64(length), 0); err != nil {
		return nil, -1, err
	}
	fd, bytes, err := newMemory("verbs-memory", length)
	if err != nil {
		c.giveBack(kindMemory, int64(length), 0)
		return nil, -1, err
	}
	return &memory{bytes: bytes}, fd, nil
}

// release unmaps memory that no region is in.
func (c *client) release(m *memory) error {
	n := int64(len(m.bytes))
	err := ring.Unmap(m.bytes)
	m.bytes = nil
	c.giveBack(kindMemory, n, 0)
	return err
}

func (c *client) free(a proto.Handle) (any, error) {
	m, err := get[*memory](c, "free", a.H)
	switch {
	case err != nil:
		return nil, err
	case m.refs > 0:
		return nil, &verbs.OpError{Op: "free", Err: verbs.ErrBusy, Detail: fmt.Sprintf("deregister its %d regions first", m.refs)}
	}
	c.drop(a.H)
	return nil, c.release(m)
}

// regMR registers a piece of memory, or fresh memory.
func (c *client) regMR(a proto.RegMR) (any, []int, error) {
	const op = "reg MR"
	pd, err := get[*pdObject](c, op, a.PD)
	if err != nil {
		return nil, nil, err
	}
	if err := c.reserve(op, kindMR, 0, 0); err != nil {
		return nil, nil, err
	}
	o := &mrObject{fresh: a.Memory == 0}
	var fds []int
	if o.fresh && a.Offset != 0 {
		err = &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "an offset in memory that is not there yet"}
	} else if o.fresh {
		var fd int
		if o.memory, fd, err = c.newMemory(op, a.Length); err == nil {
			fds = []int{fd}
		}
	} else {
		o.memory, err = get[*memory](c, op, a.Memory)
		if n := a.Length; err == nil && (n <= 0 || a.Offset < 0 || n > len(o.memory.bytes) || a.Offset > len(o.memory.bytes)-n) {
			err = &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "the buffer is not inside of the memory"}
		}
	}
	if err != nil {
		c.giveBack(kindMR, 0, 0)
		return nil, nil, err
	}
	buf := o.memory.bytes[a.Offset : a.Offset+a.Length : a.Offset+a.Length]
	if o.mr, err = pd.pd.RegMR(buf, 0, a.Access); err != nil {
		c.giveBack(kindMR, 0, 0)
		if o.fresh {
			err = errors.Join(err, c.release(o.memory), closeAll(fds))
		}
		return nil, nil, err
	}
	o.memory.refs++
	return c.putMR(o), fds, nil
}

// putMR makes a region known to the application and to the pump.
func (c *client) putMR(o *mrObject) proto.MR {
	h := c.put(o)
	out := proto.MR{H: h, Addr: o.mr.Addr(), Length: o.mr.Len(), LKey: o.mr.LKey(), RKey: o.mr.RKey()}
	c.s.with(func(e *engine.Engine) {
		c.s.noticeDown(e)
		c.port.mrs[h] = binding.EngineMR(o.mr)
		out.Incarnation = c.port.ctl.Incarnation.Load()
	})
	return out
}

func (c *client) deregMR(a proto.Handle) (any, error) {
	o, err := get[*mrObject](c, "dereg MR", a.H)
	if err != nil {
		return nil, err
	}
	if o.shared == nil {
		err = o.mr.Dereg()
	}
	if !gone(err) {
		return nil, err
	}
	c.s.with(func(*engine.Engine) { delete(c.port.mrs, a.H) })
	c.drop(a.H)
	if o.shared != nil {
		c.s.unref(o.shared)
	}
	c.giveBack(kindMR, 0, 0)
	if m := o.memory; m != nil {
		if m.refs--; m.refs == 0 && o.fresh {
			err = errors.Join(err, c.release(m))
		}
	}
	return nil, err
}

// unmapAll is the end of a client whose regions are all gone.
func (c *client) unmapAll() error {
	var errs []error
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, o := range c.objects {
		switch o := o.(type) {
		case *memory:
			errs = append(errs, ring.Unmap(o.bytes))
			o.bytes = nil
		case *mrObject:
			if o.memory != nil {
				errs = append(errs, ring.Unmap(o.memory.bytes))
				o.memory.bytes = nil
			}
		case *queueObject:
			errs = append(errs, ring.Unmap(o.bytes))
			o.bytes = nil
		}
	}
	clear(c.objects)
	if c.port != nil {
		errs = append(errs, ring.Unmap(c.port.page))
		c.port.page = nil
	}
	return errors.Join(errs...)
}

// accessMR copies out of or into a region of device memory; others are mapped.
func (c *client) accessMR(a proto.Access) (any, error) {
	o, err := get[*mrObject](c, "access MR", a.H)
	if err != nil {
		return nil, err
	}
	return accessBytes(a, o.mr.ReadAt, o.mr.WriteAt)
}

// accessBytes reads or writes a piece of bounded length.
func accessBytes(a proto.Access, read, write func([]byte, int) error) (any, error) {
	if a.Write {
		return nil, write(a.Data, a.Offset)
	}
	if a.Length < 0 || a.Length > proto.MaxData {
		return nil, &verbs.OpError{Op: "access memory", Err: verbs.ErrInvalid, Detail: fmt.Sprintf("%d bytes at once", a.Length)}
	}
	b := make([]byte, a.Length)
	if err := read(b, a.Offset); err != nil {
		return nil, err
	}
	return proto.Data{Data: b}, nil
}

func (c *client) allocMW(a proto.Handle) (any, error) {
	pd, err := get[*pdObject](c, "alloc MW", a.H)
	if err != nil {
		return nil, err
	}
	if err := c.reserve("alloc MW", kindMW, 0, 0); err != nil {
		return nil, err
	}
	mw, err := pd.pd.AllocMW()
	if err != nil {
		c.giveBack(kindMW, 0, 0)
		return nil, err
	}
	return proto.Handle{H: c.put(&mwObject{mw})}, nil
}

func (c *client) queryMW(a proto.Handle) (any, error) {
	o, err := get[*mwObject](c, "query MW", a.H)
	if err != nil {
		return nil, err
	}
	key, err := o.mw.RKey()
	return proto.Key{RKey: key}, err
}

func (c *client) deallocMW(a proto.Handle) (any, error) {
	o, err := get[*mwObject](c, "dealloc MW", a.H)
	if err != nil {
		return nil, err
	}
	if err = o.mw.Dealloc(); gone(err) {
		c.drop(a.H)
		c.giveBack(kindMW, 0, 0)
	}
	return nil, err
}

func (c *client) allocDM(a proto.Alloc) (any, error) {
	if err := c.reserve("alloc DM", kindDM, 0, 0); err != nil {
		return nil, err
	}
	dm, err := c.ctx.AllocDM(a.Length)
	if err != nil {
		c.giveBack(kindDM, 0, 0)
		return nil, err
	}
	return proto.Handle{H: c.put(&dmObject{dm})}, nil
}

func (c *client) accessDM(a proto.Access) (any, error) {
	o, err := get[*dmObject](c, "access DM", a.H)
	if err != nil {
		return nil, err
	}
	return accessBytes(a, o.dm.ReadAt, o.dm.WriteAt)
}

// regDM registers device memory; the handle is in Memory.
func (c *client) regDM(a proto.RegMR) (any, error) {
	const op = "reg DM"
	pd, err := get[*pdObject](c, op, a.PD)
	if err != nil {
		return nil, err
	}
	dm, err := get[*dmObject](c, op, a.Memory)
	if err != nil {
		return nil, err
	}
	if err := c.reserve(op, kindMR, 0, 0); err != nil {
		return nil, err
	}
	mr, err := pd.pd.RegDM(dm.dm, a.Offset, a.Length, a.Access)
	if err != nil {
		c.giveBack(kindMR, 0, 0)
		return nil, err
	}
	return c.putMR(&mrObject{mr: mr}), nil
}

func (c *client) freeDM(a proto.Handle) (any, error) {
	o, err := get[*dmObject](c, "free DM", a.H)
	if err != nil {
		return nil, err
	}
	if err = o.dm.Free(); gone(err) {
		c.drop(a.H)
		c.giveBack(kindDM, 0, 0)
	}
	return nil, err
}
