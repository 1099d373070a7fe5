package serve

import (
	"errors"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/verbsengine"
)

// maxSharedName is the largest length of a shared region's name in bytes.
const maxSharedName = 64

// sharedRegions has the regions that survive applications, by name.
type sharedRegions struct {
	base   *verbsengine.Context // makes the protection domains and the regions
	limits func() *Limits       // the present ones

	mu     sync.Mutex // guards the fields below and the regions
	byName map[string]*sharedRegion
}

// sharedRegion is a region that survives applications. The server owns the region and its
// protection domain. sharedRegions.mu guards it.
type sharedRegion struct {
	name   string
	uid    uint32
	access verbs.Access
	fd     int // memory file (a memfd); applications get copies of the descriptor
	bytes  []byte
	pd     verbs.PD
	mr     verbs.MR
	refs   int // open handles of applications
}

// share opens a shared region, or creates it.
func (c *client) share(a proto.Share) (any, []int, error) {
	const op = "share"
	if a.Name == "" || len(a.Name) > maxSharedName || a.Name != printable(a.Name) || a.Length < 0 {
		return nil, nil, verbs.Errorf(op, verbs.ErrInvalid, "want a name of 1 to %d printable bytes and a length that is not negative", maxSharedName)
	}
	needs := []need{{kindMR, 1}, {kindPD, 1}}
	if err := c.objects.take(op, needs...); err != nil {
		return nil, nil, err
	}
	c.s.shared.mu.Lock()
	defer c.s.shared.mu.Unlock()
	out, fds, err := c.openShared(op, a)
	if err != nil {
		c.objects.release(needs...)
		return nil, nil, err
	}
	return out, fds, nil
}

func (c *client) openShared(op string, a proto.Share) (out proto.Shared, fds []int, err error) {
	r := c.s.shared.byName[a.Name]
	switch {
	case r == nil && a.Length == 0:
		return out, nil, verbs.Errorf(op, verbs.ErrInvalid, "there is no shared region %q", a.Name)
	case r == nil:
		if r, err = c.s.shared.create(a, c.cred.Uid); err != nil {
			return out, nil, err
		}
		out.Created = true
	case r.uid != c.cred.Uid:
		return out, nil, verbs.Errorf(op, verbs.ErrAccess, "%q belongs to user %d", a.Name, r.uid)
	case a.Length != 0 && (a.Length != len(r.bytes) || a.Access != r.access):
		return out, nil, verbs.Errorf(op, verbs.ErrInvalid, "%q has %d bytes and access %#x", a.Name, len(r.bytes), r.access)
	}
	if _, err := r.mr.Load64(0); isClosed(err) { // the NIC was down: its region is gone, but the bytes still exist
		if err := c.s.shared.register(r); err != nil {
			return out, nil, err
		}
	}
	fd, err := unix.FcntlInt(uintptr(r.fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return out, nil, limitError("share", "%v", err)
	}
	pd, err := c.ctx.SharePD(r.pd)
	if err != nil {
		return out, nil, errors.Join(err, unix.Close(fd))
	}
	r.refs++
	out.PD = c.objects.put(pd)
	out.MR = c.execute.memories.putMR(&mrObject{mr: r.mr, shared: r})
	return out, []int{fd}, nil
}

func (s *sharedRegions) create(a proto.Share, uid uint32) (*sharedRegion, error) {
	if len(s.byName) >= s.limits().Shared {
		return nil, limitError("share", "%d shared regions exist; remove one of them first", len(s.byName))
	}
	var has int64
	for _, r := range s.byName {
		if r.uid == uid {
			has += int64(len(r.bytes))
		}
	}
	if int64(a.Length) > s.limits().SharedBytes-has {
		return nil, limitError("share", "quota shared: %d bytes more; the shared regions of user %d have %d of %d", a.Length, uid, has, s.limits().SharedBytes)
	}
	fd, bytes, err := newMemory("verbs-shared", a.Length)
	if err != nil {
		return nil, err
	}
	r := &sharedRegion{name: a.Name, uid: uid, access: a.Access, fd: fd, bytes: bytes}
	if err := s.register(r); err != nil {
		return nil, errors.Join(err, r.release())
	}
	s.byName[a.Name] = r
	return r, nil
}

// register makes the region and its protection domain. It uses the region's old domain if there is
// one: unshare leaves the domain if an application still uses it.
func (s *sharedRegions) register(r *sharedRegion) (err error) {
	if r.pd != nil {
		if mr, err := r.pd.RegMR(r.bytes, 0, r.access); !isClosed(err) {
			if err == nil {
				r.mr = mr
			}
			return err
		}
	}
	pd, err := s.base.AllocPD()
	if err != nil {
		return err
	}
	mr, err := pd.RegMR(r.bytes, 0, r.access)
	if err != nil {
		return errors.Join(err, pd.Dealloc())
	}
	r.pd, r.mr = pd, mr
	return nil
}

// release frees the memory of a region that is no longer registered.
func (r *sharedRegion) release() error {
	err := errors.Join(ring.Unmap(r.bytes), unix.Close(r.fd))
	r.bytes = nil
	return err
}

// close closes the context and frees all regions. All clients must have ended.
func (s *sharedRegions) close() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.base.Close()
	for _, r := range s.byName {
		err = errors.Join(err, r.release())
	}
	clear(s.byName)
	return err
}

func (s *sharedRegions) unref(r *sharedRegion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.refs--
}

// closeShared closes the shared regions that the client has open. The handles of their protection
// domains end with the client's context. A second call does nothing.
func (c *client) closeShared() {
	t := &c.objects
	t.mu.Lock()
	var open []*sharedRegion
	for h, o := range t.byHandle {
		if m, ok := o.(*mrObject); ok && m.shared != nil {
			open = append(open, m.shared)
			delete(t.byHandle, h)
		}
	}
	t.mu.Unlock()
	for _, r := range open {
		c.s.shared.unref(r)
	}
}

func (c *client) unshare(a proto.Share) (any, error) {
	const op = "unshare"
	s := &c.s.shared
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.byName[a.Name]
	switch {
	case r == nil:
		return nil, verbs.Errorf(op, verbs.ErrInvalid, "there is no shared region %.64q", a.Name)
	case r.uid != c.cred.Uid:
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrAccess, Detail: "it belongs to another user"}
	case r.refs > 0:
		return nil, verbs.Errorf(op, verbs.ErrBusy, "%d handles of it are open; close them first", r.refs)
	}
	if err := r.mr.Dereg(); !gone(err) {
		return nil, err
	}
	if err := r.pd.Dealloc(); !gone(err) {
		return nil, err // an application still has a handle of the domain; the region itself is gone
	}
	delete(s.byName, a.Name)
	return nil, r.release()
}
