package ipc

import (
	"errors"

	"github.com/rdmalab/rdmalab/softrnic/ipc/proto"
	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Shared is a memory region that belongs to the host's daemon, so that it survives the programs
// that use it.
type Shared struct {
	// PD is a handle of the region's protection domain. Peers reach the region through queue pairs
	// that the program makes in this domain. These queue pairs belong to the program, and end with it.
	PD verbs.PD
	// MR is a handle of the region. Dereg closes this handle; the region stays.
	MR verbs.MR
	// Created is true if Share has made the region.
	Created bool
}

// Share opens the shared region called name, or makes it with length bytes. Until the NIC crashes,
// address and keys are the same for every program that opens it; the bytes survive even a crash.
// Share touches all pages at once, like Alloc. The region belongs to the user who made it: programs
// of other users get ErrAccess. With length 0 the region must exist; otherwise an existing region
// must have this length and access.
func (c *Context) Share(name string, length int, access verbs.Access) (*Shared, error) {
	var r proto.Shared
	bytes, err := c.callMemory(proto.OpShare, proto.Share{Name: name, Length: length, Access: access}, &r, &r.MR.Length,
		undo{proto.OpDeregMR, &r.MR.H}, undo{proto.OpDeallocPD, &r.PD})
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

// Unshare removes a shared region. It fails with ErrBusy while a program has it open.
func (c *Context) Unshare(name string) error {
	return c.session.call(proto.OpUnshare, proto.Share{Name: name}, nil)
}
