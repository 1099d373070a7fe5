package host

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/rdmalab/rdmalab/onerma/executor"
	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// Transfer is a READ or a WRITE of any size.
type Transfer struct {
	Op onerma.Op // what Start does; the methods Read and Write set it themselves
	// Class is the class of service, 0 or 1; class 0 is preferred (see package nic).
	Class uint8
	// Remote is the peer's memory, from Offset on.
	Remote *Remote
	Offset uint64
	Length int // bytes
	// Local is the memory of this process, from LocalOffset on.
	Local       *Region
	LocalOffset uint64
	// Once is true if the first failed operation ends the transfer. Otherwise the executor tries
	// failed operations again, until the deadline.
	Once bool
}

// Result says how a transfer has ended: its status, and how many bytes were moved.
type Result = executor.Result

// StatusError is the error of a transfer that has not moved all of its bytes.
type StatusError struct {
	Op     onerma.Op
	Status nic.Status
	// Moved is how many of the Length bytes were moved. It is not known which bytes these are.
	Moved, Length int
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("1RMA %v: %v: %d of %d bytes were moved", e.Op, e.Status, e.Moved, e.Length)
}

// callState is the state of a Call:
//
//	idle ── Start ──▶ running ── result ──▶ ended ── Wait ──▶ idle
//	                     └── the process or its NIC has ended ──▶ lost ── Wait ──▶ idle
type callState uint8

const (
	callIdle callState = iota
	callRunning
	callEnded
	callLost
)

// Call is a transfer in progress. A new Call is its zero value. After Wait it may be passed to
// Start again.
type Call struct {
	proc    *Process
	started bool // Wait has not returned since Start; only the goroutine that calls Start and Wait uses it
	// over is true when the transfer has ended: the NIC does not use the call any more. It can be
	// read without exclusive use of the NIC.
	over   atomic.Bool
	state  callState
	op     onerma.Op
	length int
	tag    int // index of the call in Process.calls
	local  *Region
	result Result
	ready  func() bool // reports whether the transfer has ended
}

// Posting is one of the transfers that StartAll starts.
type Posting struct {
	Call *Call
	Transfer
}

// StartAll starts several transfers, as Start does, and the NIC sends their requests together. It
// returns how many were started. The error is that of the first transfer that was not started.
func (p *Process) StartAll(list []Posting, deadline clock.Time) (n int, err error) {
	p.gate()
	now := p.nic.driver.Enter()
	defer p.nic.driver.Leave()
	for i := range list {
		c := list[i].Call
		if err = p.start(now, c, &list[i].Transfer, deadline); err != nil {
			return i, err
		}
		c.started = true
	}
	return len(list), nil
}

// Start begins a transfer. After the deadline the transfer issues no more operations, and ends when
// its operations in flight have ended; clock.Never means no deadline. The call and the bytes belong
// to the NIC until Wait has returned.
func (p *Process) Start(c *Call, t *Transfer, deadline clock.Time) error {
	p.gate()
	now := p.nic.driver.Enter()
	defer p.nic.driver.Leave()
	err := p.start(now, c, t, deadline)
	c.started = c.started || err == nil
	return err
}

func (p *Process) start(now clock.Time, c *Call, t *Transfer, deadline clock.Time) error {
	op := t.Op.String()
	switch {
	case p.gone:
		return opError(op, verbs.ErrClosed, "the process or its NIC has ended")
	case c.state != callIdle:
		return opError(op, verbs.ErrBusy, "the call is in use: wait for it")
	case t.Remote == nil || t.Local == nil || t.Local.proc != p:
		return opError(op, verbs.ErrInvalid, "pass remote memory, and memory of this process")
	case t.Op != onerma.Read && t.Op != onerma.Write:
		return opError(op, verbs.ErrInvalid, "use READ or WRITE")
	case t.Length < 1 || t.Offset > t.Remote.Length || uint64(t.Length) > t.Remote.Length-t.Offset:
		return opError(op, verbs.ErrInvalid, "bytes [%d,+%d) of remote memory of %d bytes", t.Offset, t.Length, t.Remote.Length)
	case t.LocalOffset > uint64(t.Local.length) || uint64(t.Length) > uint64(t.Local.length)-t.LocalOffset:
		return opError(op, verbs.ErrInvalid, "bytes [%d,+%d) of local memory of %d bytes", t.LocalOffset, t.Length, t.Local.length)
	case t.Class >= onerma.Classes:
		return opError(op, verbs.ErrInvalid, "class %d: use 0 or 1", t.Class)
	case t.Op == onerma.Read && t.Local.mem.Access()&verbs.LocalWrite == 0:
		return opError(op, verbs.ErrInvalid, "a READ needs local memory with LocalWrite")
	case t.Remote.Addr == p.nic.cfg.NIC.Addr:
		return opError(op, verbs.ErrInvalid, "%v is this host: use memory of another one", t.Remote.Addr)
	}
	key, next := t.Remote.keys(t.Op)
	if key == nil {
		return opError(op, verbs.ErrInvalid, "the remote memory has no key for this operation")
	}
	tag := len(p.calls)
	if k := len(p.free); k > 0 {
		tag = p.free[k-1]
	} else if tag == maxCalls {
		return opError(op, verbs.ErrLimit, "%d transfers are in progress: wait for one", maxCalls)
	}
	err := p.exec.Start(now, executor.Transfer{
		Op: t.Op, Class: t.Class, Target: t.Remote.Addr, Remote: t.Remote.Region, Offset: t.Offset, Length: t.Length, Local: t.Local.nic,
		LocalOffset: t.LocalOffset, Key: key, NextKey: next, Deadline: deadline, Once: t.Once, Tag: uint64(tag),
	})
	if err != nil {
		return err
	}
	if tag == len(p.calls) {
		p.calls = append(p.calls, nil)
	} else {
		p.free = p.free[:len(p.free)-1]
	}
	p.calls[tag] = c
	c.over.Store(false)
	t.Local.transfers++
	c.local = t.Local
	c.proc, c.state, c.op, c.length, c.tag = p, callRunning, t.Op, t.Length, tag
	if c.ready == nil {
		c.ready = func() bool { return c.state != callRunning }
	}
	return nil
}

// Done reports whether Wait would return without waiting.
func (c *Call) Done() bool { return !c.started || c.over.Load() }

// Await blocks until the transfer has ended. It leaves the result for Wait.
func (c *Call) Await() error {
	if !c.started {
		return nil
	}
	c.proc.gate()
	if !c.over.Load() {
		if err := c.proc.nic.driver.Await(c.ready, clock.Never); err != nil {
			return err
		}
	}
	c.proc.gate()
	return nil
}

// Wait blocks until the transfer has ended. The error is nil if all bytes were moved, a
// *StatusError if not, verbs.ErrClosed if the process or its NIC has ended, or verbs.ErrInvalid if
// the call was not started.
func (c *Call) Wait() (Result, error) {
	if !c.started {
		return Result{}, opError("wait", verbs.ErrInvalid, "the call was not started")
	}
	if err := c.Await(); err != nil {
		return Result{}, err
	}
	state := c.state // the NIC does not use the call any more
	c.started, c.state = false, callIdle
	if state == callLost {
		return Result{}, opError(c.op.String(), verbs.ErrClosed, "the process or its NIC has ended")
	}
	if c.result.Status != nic.OK {
		return c.result, &StatusError{c.op, c.result.Status, c.result.Moved, c.length}
	}
	return c.result, nil
}

// cancel makes a transfer end early: as soon as its operations in flight have ended.
func (c *Call) cancel() {
	c.proc.nic.exclusive(func(now clock.Time) {
		if !c.over.Load() { // Wait changes the state without exclusive use of the NIC
			c.proc.exec.Cancel(now, uint64(c.tag))
		}
	})
}

// Read copies bytes of a peer's memory to local memory. It returns when all bytes have arrived, or
// soon after the context's deadline or its end. When it has returned, no byte changes any more.
func (p *Process) Read(ctx context.Context, t Transfer) (Result, error) {
	t.Op = onerma.Read
	return p.move(ctx, &t)
}

// Write copies bytes of local memory to a peer's memory, and returns like Read.
func (p *Process) Write(ctx context.Context, t Transfer) (Result, error) {
	t.Op = onerma.Write
	return p.move(ctx, &t)
}

func (p *Process) move(ctx context.Context, t *Transfer) (Result, error) {
	if err := ctx.Err(); err != nil {
		return Result{}, err
	}
	deadline := clock.Never
	if at, ok := ctx.Deadline(); ok {
		deadline = p.nic.driver.Now().Add(time.Until(at))
	}
	var c Call
	if err := p.Start(&c, t, deadline); err != nil {
		return Result{}, err
	}
	stop := context.AfterFunc(ctx, c.cancel)
	res, err := c.Wait()
	stop()
	var failed *StatusError
	if errors.As(err, &failed) && ctx.Err() != nil {
		err = fmt.Errorf("%w (%w)", err, ctx.Err())
	}
	return res, err
}
