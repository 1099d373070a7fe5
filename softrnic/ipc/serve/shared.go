package serve

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxSharedName bounds the name of a shared region, in bytes.
const maxSharedName = 64

// sharedRegion is a region that outlives applications: its domain and the region are the server's. It is guarded by
// Server.mu.
type sharedRegion struct {
	name   string
	uid    uint32
	access verbs.Access
	fd     int // to hand out
	bytes  []byte
	pd     verbs.PD
	mr     verbs.MR
	refs   int // handles of applications
}

// share opens a shared region, or makes it.
func (c *client) share(a proto.Share) (any, []int, error) {
	const op = "share"
	fail := func(err error, format string, args ...any) error {
		return &verbs.OpError{Op: op, Err: err, Detail: fmt.Sprintf(format, args...)}
	}
	if a.Name == "" || len(a.Name) > maxSharedName || a.Name != printable(a.Name) || a.Length < 0 {
		return nil, nil, fail(verbs.ErrInvalid, "want a name of 1 to %d printable bytes and a length that is not negative", maxSharedName)
	}
	if err := c.reserve(op, kindMR, 0, 0); err != nil {
		return nil, nil, err
	}
	if err := c.reserve(op, kindPD, 0, 0); err != nil {
		c.giveBack(kindMR, 0, 0)
		return nil, nil, err
	}
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	out, fds, err := c.openShared(a, fail)
	if err != nil {
		c.giveBack(kindMR, 0, 0)
		c.giveBack(kindPD, 0, 0)
		return nil, nil, err
	}
	return out, fds, nil
}

func (c *client) openShared(a proto.Share, fail func(error, string, ...any) error) (out proto.Shared, fds []int, err error) {
	r := c.s.shared[a.Name]
	switch {
	case r == nil && a.Length == 0:
		return out, nil, fail(verbs.ErrInvalid, "there is no shared region %q", a.Name)
	case r == nil:
		if r, err = c.s.makeShared(a, c.cred.Uid); err != nil {
			return out, nil, err
		}
		out.Created = true
	case r.uid != c.cred.Uid:
		return out, nil, fail(verbs.ErrAccess, "%q belongs to user %d", a.Name, r.uid)
	case a.Length != 0 && (a.Length != len(r.bytes) || a.Access != r.access):
		return out, nil, fail(verbs.ErrInvalid, "%q has %d bytes and access %#x", a.Name, len(r.bytes), r.access)
	}
	if _, err := r.mr.Load64(0); isClosed(err) { // the NIC was down meanwhile: the bytes are there, the region is not
		if err := c.s.register(r); err != nil {
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
	out.PD = c.put(&pdObject{pd})
	out.MR = c.putMR(&mrObject{mr: r.mr, shared: r})
	return out, []int{fd}, nil
}

// makeShared makes a shared region.
func (s *Server) makeShared(a proto.Share, uid uint32) (*sharedRegion, error) {
	if len(s.shared) >= s.cfg.Limits.Shared {
		return nil, limitError("share", "%d shared regions exist", len(s.shared))
	}
	if int64(a.Length) > s.cfg.Limits.Bytes {
		return nil, limitError("share", "%d bytes; at most %d", a.Length, s.cfg.Limits.Bytes)
	}
	fd, bytes, err := newMemory("verbs-shared", a.Length)
	if err != nil {
		return nil, err
	}
	r := &sharedRegion{name: a.Name, uid: uid, access: a.Access, fd: fd, bytes: bytes}
	if err := s.register(r); err != nil {
		return nil, errors.Join(err, r.release())
	}
	s.shared[a.Name] = r
	return r, nil
}

// register makes the region and its domain; one that an application has kept alive over unshare is used again.
func (s *Server) register(r *sharedRegion) (err error) {
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

// release gives the memory of a region back that is not registered any more.
func (r *sharedRegion) release() error {
	err := errors.Join(ring.Unmap(r.bytes), unix.Close(r.fd))
	r.bytes = nil
	return err
}

func (s *Server) unref(r *sharedRegion) {
	s.mu.Lock()
	defer s.mu.Unlock()
	r.refs--
}

// closeShared gives back what a client has open. Its domains' handles go with its context. Calling it again is harmless.
func (s *Server) closeShared(c *client) {
	c.mu.Lock()
	var open []*sharedRegion
	for h, o := range c.objects {
		if m, ok := o.(*mrObject); ok && m.shared != nil {
			open = append(open, m.shared)
			delete(c.objects, h)
		}
	}
	c.mu.Unlock()
	for _, r := range open {
		s.unref(r)
	}
}

// unshare takes a shared region away for good.
func (c *client) unshare(a proto.Share) (any, error) {
	const op = "unshare"
	s := c.s
	s.mu.Lock()
	defer s.mu.Unlock()
	r := s.shared[a.Name]
	switch {
	case r == nil:
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrInvalid, Detail: fmt.Sprintf("there is no shared region %.64q", a.Name)}
	case r.uid != c.cred.Uid:
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrAccess, Detail: "it belongs to another user"}
	case r.refs > 0:
		return nil, &verbs.OpError{Op: op, Err: verbs.ErrBusy, Detail: fmt.Sprintf("%d handles of it are open", r.refs)}
	}
	if err := r.mr.Dereg(); !gone(err) {
		return nil, err
	}
	if err := r.pd.Dealloc(); !gone(err) {
		return nil, err // an application still has a handle of the domain; the region is gone
	}
	delete(s.shared, a.Name)
	return nil, r.release()
}
