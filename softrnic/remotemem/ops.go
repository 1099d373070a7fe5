package remotemem

import (
	"errors"
	"fmt"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Op is one operation on a peer. The caller fills in Peer and WR, except the ID and the flag
// Signalled. The Op belongs to the fabric from the post until it is Done.
type Op struct {
	Peer int
	WR   verbs.SendWR
	// Status is the result when the operation is Done.
	Status verbs.Status
	Done   bool
	// before is the previous operation of the same Chain. It has no completion of its own: it is
	// Done when this operation completes.
	before *Op
}

// Target names memory of a peer.
type Target struct {
	Peer int
	Addr uint64
	RKey uint32
}

// Read makes o a READ of n bytes of a peer's memory into the buffer at `off`.
func (f *Fabric) Read(o *Op, t Target, off, n int) { f.prepare(o, t, verbs.OpRead, off, n) }

// Write makes o a WRITE of n bytes of the buffer at `off` to a peer's memory.
func (f *Fabric) Write(o *Op, t Target, off, n int) { f.prepare(o, t, verbs.OpWrite, off, n) }

// CompareSwap makes o a compare-and-swap of a word of a peer's memory; the old value is stored in
// the buffer at `off`.
func (f *Fabric) CompareSwap(o *Op, t Target, compare, swap uint64, off int) {
	f.prepare(o, t, verbs.OpCmpSwap, off, 8)
	o.WR.CompareAdd, o.WR.Swap = compare, swap
}

// FetchAdd makes o a fetch-and-add on a word of a peer's memory; the old value is stored in the
// buffer at `off`.
func (f *Fabric) FetchAdd(o *Op, t Target, add uint64, off int) {
	f.prepare(o, t, verbs.OpFetchAdd, off, 8)
	o.WR.CompareAdd = add
}

// Send makes o a SEND of n bytes of the buffer at `off`.
func (f *Fabric) Send(o *Op, peer, off, n int) {
	f.prepare(o, Target{Peer: peer}, verbs.OpSend, off, n)
}

func (f *Fabric) prepare(o *Op, t Target, op verbs.WROpcode, off, n int) {
	sgl := append(o.WR.SGL[:0], f.mr.SGE(off, n))
	*o = Op{Peer: t.Peer, WR: verbs.SendWR{Op: op, SGL: sgl, RemoteAddr: t.Addr, RKey: t.RKey}}
}

// OpError is the error of an operation that failed; its queue pair is broken.
type OpError struct {
	Op     verbs.WROpcode
	Peer   string
	Status verbs.Status
}

func (e *OpError) Error() string { return fmt.Sprintf("%v at %s: %v", e.Op, e.Peer, e.Status) }

// Start posts an operation without waiting for it. There must be a connection; see Open.
func (f *Fabric) Start(o *Op) error {
	p := f.peers[o.Peer]
	if p.qp == nil || p.broken {
		o.Done, o.Status = true, verbs.WRFlushErr
		return fmt.Errorf("%v at %v: %w", o.WR.Op, p.addr, verbs.ErrUnreachable)
	}
	if len(f.free) == 0 {
		o.Done, o.Status = true, verbs.WRFlushErr
		return fmt.Errorf("%d operations in flight: %w", maxOps, verbs.ErrNoSpace)
	}
	id := f.free[len(f.free)-1]
	o.WR.ID, o.Done = id, false
	o.WR.Flags |= verbs.Signalled
	if err := p.qp.PostSend(o.WR); err != nil {
		o.Done, o.Status, p.broken = true, verbs.WRFlushErr, true
		return err
	}
	f.free = f.free[:len(f.free)-1]
	f.ops[id] = o
	p.pending++
	return nil
}

// Chain posts operations on one peer with one doorbell. The peer executes them in this order. If
// all succeed, only the last one has a completion, which means that all are done. If there is no
// connection to the peer (see Open), Chain posts nothing and returns an error. Wait waits for the
// operations.
func (f *Fabric) Chain(ops ...*Op) error {
	p := f.peers[ops[0].Peer]
	if p.qp == nil || p.broken || len(f.free) < len(ops) {
		for _, o := range ops {
			o.Done, o.Status = true, verbs.WRFlushErr
		}
		return fmt.Errorf("%v at %v: %w", ops[0].WR.Op, p.addr, verbs.ErrUnreachable)
	}
	f.wrs = f.wrs[:0]
	var before *Op
	for i, o := range ops {
		id := f.free[len(f.free)-1]
		f.free = f.free[:len(f.free)-1]
		f.ops[id] = o
		p.pending++
		o.WR.ID, o.Done, o.before = id, false, before
		if before = o; i == len(ops)-1 {
			o.WR.Flags |= verbs.Signalled
		} else {
			o.WR.Flags &^= verbs.Signalled
		}
		f.wrs = append(f.wrs, o.WR)
	}
	err := p.qp.PostSend(f.wrs...)
	if err == nil {
		return nil
	}
	posted := 0
	var op *verbs.OpError
	if errors.As(err, &op) {
		posted = op.Index
	}
	for _, o := range ops[posted:] {
		o.before = nil
		f.finish(o.WR.ID, verbs.WRFlushErr)
	}
	return errors.Join(err, f.Break(ops[0].Peer))
}

// Do connects where necessary, posts the operations and waits for all of them. If a peer cannot be
// reached, it posts none and returns the reason. Other errors are ErrTimeout, the error of a post
// that failed, and an *OpError of the first operation that failed; each operation has its own
// Status.
func (f *Fabric) Do(deadline clock.Time, ops ...*Op) error {
	for _, o := range ops {
		if err := f.Open(o.Peer, deadline); err != nil {
			return err
		}
	}
	var first error
	for _, o := range ops {
		if err := f.Start(o); err != nil && first == nil {
			first = err
		}
	}
	if err := f.Wait(deadline, ops...); first == nil {
		first = err
	}
	return first
}

// Wait waits until the operations are done. The error is an *OpError of the first of them that
// failed. At the deadline, Wait fails with ErrTimeout and breaks the connections of operations that
// are not done.
func (f *Fabric) Wait(deadline clock.Time, ops ...*Op) error {
	var first error
	for _, o := range ops {
		for !o.Done {
			if err := f.progress(deadline); err != nil {
				return errors.Join(err, f.giveUp(ops))
			}
		}
		if o.Status != verbs.Success && first == nil {
			first = &OpError{Op: o.WR.Op, Peer: f.peers[o.Peer].addr.String(), Status: o.Status}
		}
	}
	return first
}

// giveUp breaks the connections of operations that were not done in time.
func (f *Fabric) giveUp(ops []*Op) error {
	var errs []error
	for _, o := range ops {
		if !o.Done {
			errs = append(errs, f.Break(o.Peer))
		}
	}
	return errors.Join(errs...)
}

// Until waits until ready returns true. It does not return when a connection breaks; ready can
// check Connected.
func (f *Fabric) Until(deadline clock.Time, ready func() bool) error {
	for !ready() {
		if err := f.progress(deadline); err != nil {
			return err
		}
	}
	return nil
}

// Poll handles completions without waiting.
func (f *Fabric) Poll() error {
	n, err := f.cq.Poll(f.wcs[:])
	f.take(n)
	return err
}

// progress handles completions; if there is none, it waits for one. It fails with ErrTimeout at the
// deadline.
func (f *Fabric) progress(deadline clock.Time) error {
	n, err := f.cq.Poll(f.wcs[:])
	if err != nil {
		return err
	}
	if n == 0 {
		return f.cq.Wait(deadline)
	}
	f.take(n)
	return nil
}

func (f *Fabric) take(n int) {
	for i := range f.wcs[:n] {
		if wc := &f.wcs[i]; wc.ID == 0 {
			f.received(wc)
		} else {
			f.finish(wc.ID, wc.Status)
		}
	}
}

// finish marks the operation with this ID as Done with status s, and those before it in its Chain
// as Done with Success.
func (f *Fabric) finish(id uint64, s verbs.Status) {
	o := f.ops[id]
	if o == nil {
		return
	}
	if b := o.before; b != nil && !b.Done {
		f.finish(b.WR.ID, verbs.Success) // if b had failed, its completion would have come before this one
	}
	o.before = nil
	p := f.peers[o.Peer]
	f.ops[id] = nil
	f.free = append(f.free, id)
	o.Done, o.Status = true, s
	p.pending--
	if s != verbs.Success && p.last.Status == verbs.Success {
		p.last.Op, p.last.Status = o.WR.Op, s
	}
	p.broken = p.broken || s != verbs.Success
}

// received handles a WRITE with immediate data, or a flushed receive of a broken queue pair.
func (f *Fabric) received(wc *verbs.WC) {
	for _, p := range f.peers {
		if p.qp == nil || p.qp.QPN() != wc.QPN {
			continue
		}
		if wc.Status != verbs.Success || p.qp.PostRecv(verbs.RecvWR{}) != nil {
			p.broken = true
		}
		break
	}
	if wc.Status == verbs.Success && wc.Flags&verbs.WithImm != 0 && f.notify != nil {
		f.notify(wc.Imm)
	}
}
