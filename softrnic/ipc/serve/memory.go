package serve

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// newMemory makes a memory file (a memfd of fixed size) and maps it.
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

// memory is shared memory that an application can register. refs counts the regions in it.
type memory struct {
	bytes []byte
	refs  int
}

// memories executes the calls of one client that concern protection domains, regions, windows and
// device memory.
type memories struct {
	c       *client
	objects *objects
	pump    *pump
}

type mrObject struct {
	mr     verbs.MR
	memory *memory       // nil means that it is device memory or a shared region
	fresh  bool          // the memory was made for this region alone and has no handle of its own
	shared *sharedRegion // nil means that it is no shared region
}

func (x memories) allocPD(proto.None) (any, error) {
	pd, err := made(x.objects, "alloc PD", kindPD, 0, x.c.ctx.AllocPD)
	if err != nil {
		return nil, err
	}
	return proto.Handle{H: x.objects.put(pd)}, nil
}

func (x memories) deallocPD(a proto.Handle) (any, error) {
	return ended(x.objects, "dealloc PD", a.H, kindPD, verbs.PD.Dealloc)
}

// alloc makes memory that the application registers later, as a whole or in parts.
func (x memories) alloc(a proto.Alloc) (any, []int, error) {
	m, fd, err := x.newMemory("alloc", a.Length)
	if err != nil {
		return nil, nil, err
	}
	return proto.Handle{H: x.objects.put(m)}, []int{fd}, nil
}

func (x memories) newMemory(op string, length int) (*memory, int, error) {
	if length <= 0 {
		return nil, -1, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("length %d", length)}
	}
	if err := x.objects.reserve(op, kindMemory, int64(length), 0); err != nil {
		return nil, -1, err
	}
	fd, bytes, err := newMemory("verbs-memory", length)
	if err != nil {
		x.objects.giveBack(kindMemory, int64(length), 0)
		return nil, -1, err
	}
	return &memory{bytes: bytes}, fd, nil
}

// release unmaps memory that has no regions.
func (x memories) release(m *memory) error {
	n := int64(len(m.bytes))
	err := ring.Unmap(m.bytes)
	m.bytes = nil
	x.objects.giveBack(kindMemory, n, 0)
	return err
}

func (x memories) free(a proto.Handle) (any, error) {
	m, err := get[*memory](x.objects, "free", a.H)
	switch {
	case err != nil:
		return nil, err
	case m.refs > 0:
		return nil, &verbs.OpError{Op: "free", Err: verbs.ErrBusy, Detail: fmt.Sprintf("deregister its %d regions first", m.refs)}
	}
	x.objects.drop(a.H)
	return nil, x.release(m)
}

// regMR registers a part of memory that alloc has made, or makes new memory and registers it.
func (x memories) regMR(a proto.RegMR) (any, []int, error) {
	const op = "reg MR"
	pd, err := get[verbs.PD](x.objects, op, a.PD)
	if err != nil {
		return nil, nil, err
	}
	var fds []int
	o, err := made(x.objects, op, kindMR, 0, func() (o *mrObject, err error) {
		o, fds, err = x.newMR(op, pd, a)
		return o, err
	})
	if err != nil {
		return nil, nil, err
	}
	return x.putMR(o), fds, nil
}

func (x memories) newMR(op string, pd verbs.PD, a proto.RegMR) (o *mrObject, fds []int, err error) {
	o = &mrObject{fresh: a.Memory == 0}
	if o.fresh && a.Offset != 0 {
		err = &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "an offset needs memory that was allocated before"}
	} else if o.fresh {
		var fd int
		if o.memory, fd, err = x.newMemory(op, a.Length); err == nil {
			fds = []int{fd}
		}
	} else {
		o.memory, err = get[*memory](x.objects, op, a.Memory)
		if n := a.Length; err == nil && (n <= 0 || a.Offset < 0 || n > len(o.memory.bytes) || a.Offset > len(o.memory.bytes)-n) {
			err = &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: "the buffer is not inside the memory"}
		}
	}
	if err != nil {
		return nil, nil, err
	}
	buf := o.memory.bytes[a.Offset : a.Offset+a.Length : a.Offset+a.Length]
	if a.Fast {
		o.mr, err = pd.AllocFastMR(buf, 0)
	} else {
		o.mr, err = pd.RegMR(buf, 0, a.Access)
	}
	if err != nil {
		if o.fresh {
			err = errors.Join(err, x.release(o.memory), closeAll(fds))
		}
		return nil, nil, err
	}
	o.memory.refs++
	return o, fds, nil
}

// putMR gives a region a handle and makes it known to the pump, the goroutine that executes the
// application's accesses to words of the region.
func (x memories) putMR(o *mrObject) proto.MR {
	h := x.objects.put(o)
	out := proto.MR{H: h, Addr: o.mr.Addr(), Length: o.mr.Len(), LKey: o.mr.LKey(), RKey: o.mr.RKey()}
	x.pump.with(func(e *engine.Engine) {
		x.pump.noticeDown(e)
		x.c.port.mrs[h] = verbsengine.EngineMR(o.mr)
		out.Incarnation = x.c.port.ctl.Incarnation.Load()
	})
	return out
}

// reregMR changes the access rights of a region. It refuses a shared region, which keeps the rights
// that it was made with.
func (x memories) reregMR(a proto.ReregMR) (any, error) {
	const op = "rereg MR"
	o, err := get[*mrObject](x.objects, op, a.H)
	if err != nil {
		return nil, err
	}
	if o.shared != nil {
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrAccess, Detail: "a shared region keeps the rights that it was made with"}
	}
	return nil, o.mr.Rereg(a.Access)
}

func (x memories) deregMR(a proto.Handle) (any, error) {
	o, err := get[*mrObject](x.objects, "dereg MR", a.H)
	if err != nil {
		return nil, err
	}
	if o.shared == nil {
		err = o.mr.Dereg()
	}
	if !gone(err) {
		return nil, err
	}
	x.pump.with(func(*engine.Engine) { delete(x.c.port.mrs, a.H) })
	x.objects.drop(a.H)
	if o.shared != nil {
		x.c.s.shared.unref(o.shared)
	}
	x.objects.giveBack(kindMR, 0, 0)
	if m := o.memory; m != nil {
		if m.refs--; m.refs == 0 && o.fresh {
			err = errors.Join(err, x.release(m))
		}
	}
	return nil, err
}

// accessMR copies bytes out of or into a region of device memory. Applications map other regions
// and access them directly.
func (x memories) accessMR(a proto.Access) (any, error) {
	o, err := get[*mrObject](x.objects, "access MR", a.H)
	if err != nil {
		return nil, err
	}
	return accessBytes(a, o.mr.ReadAt, o.mr.WriteAt)
}

// accessBytes executes access a by read or write. It reads at most proto.MaxData bytes.
func accessBytes(a proto.Access, read, write func([]byte, int) error) (any, error) {
	if a.Write {
		return nil, write(a.Data, a.Offset)
	}
	if a.Length < 0 || a.Length > proto.MaxData {
		return nil, &verbs.OpError{Op: "access memory", Err: verbs.ErrInvalid, Detail: fmt.Sprintf("%d bytes at once; at most %d", a.Length, proto.MaxData)}
	}
	b := make([]byte, a.Length)
	if err := read(b, a.Offset); err != nil {
		return nil, err
	}
	return proto.Data{Data: b}, nil
}

func (x memories) allocMW(a proto.Handle) (any, error) {
	pd, err := get[verbs.PD](x.objects, "alloc MW", a.H)
	if err != nil {
		return nil, err
	}
	mw, err := made(x.objects, "alloc MW", kindMW, 0, pd.AllocMW)
	if err != nil {
		return nil, err
	}
	return proto.Handle{H: x.objects.put(mw)}, nil
}

func (x memories) queryMW(a proto.Handle) (any, error) {
	o, err := get[verbs.MW](x.objects, "query MW", a.H)
	if err != nil {
		return nil, err
	}
	key, err := o.RKey()
	return proto.Key{RKey: key}, err
}

func (x memories) deallocMW(a proto.Handle) (any, error) {
	return ended(x.objects, "dealloc MW", a.H, kindMW, verbs.MW.Dealloc)
}

func (x memories) allocDM(a proto.Alloc) (any, error) {
	needs := []need{{kindDM, 1}, {kindDevice, int64(max(a.Length, 0))}}
	if err := x.objects.take("alloc DM", needs...); err != nil {
		return nil, err
	}
	dm, err := x.c.ctx.AllocDM(a.Length)
	if err != nil {
		x.objects.release(needs...)
		return nil, err
	}
	return proto.Handle{H: x.objects.put(dm)}, nil
}

func (x memories) accessDM(a proto.Access) (any, error) {
	o, err := get[verbs.DM](x.objects, "access DM", a.H)
	if err != nil {
		return nil, err
	}
	return accessBytes(a, o.ReadAt, o.WriteAt)
}

// regDM registers a part of device memory; a.Memory is the handle of the device memory.
func (x memories) regDM(a proto.RegMR) (any, error) {
	const op = "reg DM"
	pd, err := get[verbs.PD](x.objects, op, a.PD)
	if err != nil {
		return nil, err
	}
	dm, err := get[verbs.DM](x.objects, op, a.Memory)
	if err != nil {
		return nil, err
	}
	mr, err := made(x.objects, op, kindMR, 0, func() (verbs.MR, error) { return pd.RegDM(dm, a.Offset, a.Length, a.Access) })
	if err != nil {
		return nil, err
	}
	return x.putMR(&mrObject{mr: mr}), nil
}

func (x memories) freeDM(a proto.Handle) (any, error) {
	o, err := get[verbs.DM](x.objects, "free DM", a.H)
	if err != nil {
		return nil, err
	}
	if err = o.Free(); gone(err) {
		x.objects.drop(a.H)
		x.objects.release(need{kindDM, 1}, need{kindDevice, int64(o.Len())})
	}
	return nil, err
}
