package ipc

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Shared is a region that belongs to the host's daemon and outlives programs.
type Shared struct {
	// PD is a handle of the region's protection domain: queue pairs made with it let peers reach
	// the region. They are the program's, and end with it.
	PD verbs.PD
	// MR is the region. Dereg closes the handle; the region stays.
	MR verbs.MR
	// Created: the region did not exist before.
	Created bool
}

// Share opens the shared region called name, or makes one of length bytes. Address and keys are the
// same for every program that opens it, as long as the NIC does not crash; the bytes survive even
// that. Its pages are made at once, as those of Alloc. It belongs to the user who made it: programs of others get ErrAccess. With length 0 it must
// exist; otherwise its length and access must be these.
func (c *Context) Share(name string, length int, access verbs.Access) (*Shared, error) {
	var r proto.Shared
	bytes, err := c.callMemory(proto.OpShare, proto.Share{Name: name, Length: length, Access: access}, &r, &r.MR.Length)
	if err != nil {
		return nil, err
	}
	p := &pd{ctx: c, h: r.PD}
	s := &Shared{PD: p, MR: p.newMR(r.MR, bytes, true), Created: r.Created}
	if err := ring.Populate(bytes); err != nil {
		return nil, errors.Join(err, s.MR.Dereg(), p.Dealloc())
	}
	return s, nil
}

// Unshare removes a shared region; ErrBusy while any program has it open.
func (c *Context) Unshare(name string) error {
	return c.call(proto.OpUnshare, proto.Share{Name: name}, nil)
}
