package remotemem

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Limits of a fabric.
const (
	// MaxPeers is the largest number of peers.
	MaxPeers = 128
	// maxOps is the largest number of operations in flight.
	maxOps = 256
	// dialPatience is the time limit of one attempt to connect.
	dialPatience = 2 * time.Second
	// drainPatience is how long to wait until a broken queue pair has flushed its work requests. This
	// needs no network.
	drainPatience = 5 * time.Second
)

// Config describes a fabric.
type Config struct {
	Context verbs.Context
	// Buffer is the size of the registered memory in bytes.
	Buffer int
	// Access are the rights of peers to the buffer. To use them, a peer needs the buffer's address and
	// key, which the caller sends.
	Access verbs.Access
}

// Connect connects qp, which is in RESET, to a peer and moves it to RTS.
type Connect func(qp verbs.QP, deadline clock.Time) error

// Fabric is a client's set of connections to peers. See the package comment.
type Fabric struct {
	rt    verbs.Runtime
	pd    verbs.PD
	cq    verbs.CQ
	mr    verbs.MR
	peers []*peer
	// ops are the operations in flight, by the IDs of their work requests, which begin at 1.
	ops    []*Op
	free   []uint64         // IDs of no operation in flight
	notify func(imm uint32) // see OnNotify
	wcs    [64]verbs.WC
	wrs    []verbs.SendWR
}

// peer is one peer of the fabric, with the queue pair that is connected to it.
type peer struct {
	addr    netip.Addr
	connect Connect
	recvs   int // see AddPeer
	qp      verbs.QP
	// pending is the number of send work requests that are posted and not completed.
	pending int
	broken  bool // the queue pair has failed, or was ended: no operation can be posted
	// probe is the WRITE of Expect. last is the operation that has failed first on the present queue
	// pair; its Status is Success if none has.
	probe Op
	last  OpError
}

// New returns a fabric without peers.
func New(cfg Config) (_ *Fabric, err error) {
	f := &Fabric{rt: cfg.Context.Runtime(), ops: make([]*Op, maxOps+1)}
	for id := uint64(maxOps); id > 0; id-- {
		f.free = append(f.free, id)
	}
	if f.pd, err = cfg.Context.AllocPD(); err != nil {
		return nil, err
	}
	if f.cq, err = cfg.Context.CreateCQ(2 * maxOps); err != nil {
		return nil, errors.Join(err, f.pd.Dealloc())
	}
	if f.mr, err = f.pd.RegMR(nil, cfg.Buffer, cfg.Access|verbs.LocalWrite); err != nil {
		return nil, errors.Join(err, f.cq.Destroy(), f.pd.Dealloc())
	}
	return f, nil
}

// Word returns the old value that an atomic has written to the buffer at offset `at`, in host byte
// order.
func (f *Fabric) Word(at int) (uint64, error) {
	var b [8]byte
	err := f.mr.ReadAt(b[:], at)
	return binary.NativeEndian.Uint64(b[:]), err
}

func (f *Fabric) MR() verbs.MR { return f.mr }

func (f *Fabric) PD() verbs.PD { return f.pd }

func (f *Fabric) Runtime() verbs.Runtime { return f.rt }

// OnNotify sets a function that is called with the immediate data of each WRITE with immediate data
// from a peer.
func (f *Fabric) OnNotify(call func(imm uint32)) { f.notify = call }

// AddPeer adds a peer and returns its number. recvs is the number of receives that are posted for
// the peer's WRITEs with immediate data. Open calls c to connect a queue pair to the peer.
func (f *Fabric) AddPeer(addr netip.Addr, recvs int, c Connect) (int, error) {
	if len(f.peers) == MaxPeers {
		return 0, fmt.Errorf("%d peers: %w", MaxPeers, verbs.ErrLimit)
	}
	f.peers = append(f.peers, &peer{addr: addr, connect: c, recvs: recvs})
	return len(f.peers) - 1, nil
}

// Connected reports whether there is a queue pair to peer i, and it has not failed.
func (f *Fabric) Connected(i int) bool { return f.peers[i].qp != nil && !f.peers[i].broken }

// Open connects to a peer, unless there is a connection.
func (f *Fabric) Open(i int, deadline clock.Time) error {
	p := f.peers[i]
	if f.Connected(i) {
		return nil
	}
	if err := f.Break(i); err != nil {
		return err
	}
	qp, err := f.pd.CreateQP(verbs.QPInit{
		Type: verbs.RC, SendCQ: f.cq, RecvCQ: f.cq, MaxSendWR: maxOps, MaxRecvWR: max(1, p.recvs), MaxSGE: 1,
	})
	if err != nil {
		return err
	}
	if limit := f.rt.Now().Add(dialPatience); limit < deadline {
		deadline = limit
	}
	if err := p.connect(qp, deadline); err != nil {
		return errors.Join(fmt.Errorf("connect to %v: %w", p.addr, err), qp.Destroy())
	}
	p.qp, p.broken, p.last = qp, false, OpError{}
	for range p.recvs {
		if err := qp.PostRecv(verbs.RecvWR{}); err != nil {
			return errors.Join(err, f.Break(i))
		}
	}
	return nil
}

// Break ends the connection to a peer. Operations in flight end with WRFlushErr.
func (f *Fabric) Break(i int) error {
	p := f.peers[i]
	if p.qp == nil {
		return nil
	}
	p.broken = true
	_ = p.qp.ToError() // fails if the queue pair is already in ERROR, or has ended with its NIC
	for end := f.rt.Now().Add(drainPatience); p.pending > 0; {
		if err := f.progress(end); err != nil {
			f.abandon(i)
			break
		}
	}
	err := p.qp.Destroy()
	p.qp = nil
	return verbs.Gone(err)
}

// abandon ends the operations on a peer that the NIC has not flushed, for example because it is
// down.
func (f *Fabric) abandon(i int) {
	for id, op := range f.ops {
		if op != nil && op.Peer == i {
			op.before = nil // without a completion, nothing is known of the operations before it in a Chain
			f.finish(uint64(id), verbs.WRFlushErr)
		}
	}
}

// Close ends all connections and destroys the fabric's objects.
func (f *Fabric) Close() error {
	var errs []error
	for i := range f.peers {
		errs = append(errs, f.Break(i))
	}
	return errors.Join(append(errs, verbs.Gone(f.mr.Dereg()), verbs.Gone(f.cq.Destroy()), verbs.Gone(f.pd.Dealloc()))...)
}
