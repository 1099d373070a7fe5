package scenario

import (
	"encoding/binary"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Bounds of the client mix.
const (
	maxPieces = 3
	maxInline = 64
	// mixPatience is the longest time, in virtual time, for which a client waits for a completion.
	// All retries of a queue pair take less.
	mixPatience = 30 * time.Second
)

// mix is a client that executes random operations on a part of the server's memory that no other
// client uses, and sends messages to the server. It keeps a shadow, a copy of what that memory must
// contain. Operations of one queue pair take effect in order, so the result of each READ and atomic
// is known when it is posted. Operations whose order is not guaranteed (a WRITE or atomic behind a
// READ of the same bytes) get the fence flag.
type mix struct {
	mixPlan
	mixWindow
	env     *env
	name    string // name of the mix's service at the server
	host    *simrack.Host
	atomics int // atomics that this client has drawn; the server must execute each of them once

	// sent and received count the messages that consume a receive at the server: those that the
	// client has sent, and those that the server has received.
	sent, received int
	end            *ends
	mem            remote
	extra          remote // a second region of the server, which endInvalidate makes invalid
	shadow         []byte
	draw           *draw
	fill           perf.Pattern // content of WRITEs, by number of the operation
	msgs           perf.Pattern // content of messages, by number of the message
}

// mixPlan has the choices that the seed makes for a mix.
type mixPlan struct {
	params rdmacm.Params
	mtu    int
	ops    int
	depth  int  // the most operations in flight
	region int  // bytes of the client's memory at the server
	maxLen int  // the most bytes of an operation; not more than region
	late   bool // the server posts each receive again only after a pause
	recvs  int  // receives that the server posts
	lossy  bool // links may lose packets, so that retries may run out
	epilog epilog
}

// mixWindow has the operations in flight: operation number k is in ring at index k modulo the
// depth.
type mixWindow struct {
	ring      []mixOp
	complete  int // operations that are complete
	posted    int // operations that were posted
	signalled int // number of the last operation that requests a completion; -1: none
}

// epilog is the last step of a mix, after its operations.
type epilog uint8

const (
	endPlain      epilog = iota
	endBadKey            // a READ with a wrong R_Key must be refused
	endInvalidate        // a SEND invalidates an R_Key, and then a READ with this R_Key must be refused
)

// mixOp is an operation in flight, with its expected result.
type mixOp struct {
	op     verbs.WROpcode
	off, n int
	expect []byte // the bytes that a READ must return
	want   uint64 // the original value that an atomic must return
}

// message describes message number n of those that consume a receive. Opcode, length and immediate
// depend only on n, so that the server knows them, too.
func (m *mix) message(n int) (op verbs.WROpcode, size int, imm uint32) {
	d := newDraw(m.msgs.Seed ^ uint64(n)*0x9e3779b97f4a7c15)
	return one(d, verbs.OpSend, verbs.OpSendImm, verbs.OpWriteImm), d.size(m.mtu, m.maxLen), d.Uint32()
}

func (m *mix) client(ctx verbs.Context) error {
	var err error
	if m.end, err = newEnds(ctx, m.depth*m.slotLen(), m.depth, verbs.LocalWrite); err != nil {
		return err
	}
	return m.end.limit(m.work(ctx), m.host.Spec.Name)
}

func (m *mix) work(ctx verbs.Context) error {
	regions, err := m.env.dial(m.host, ctx, m.end.qp, m.name, m.params, nil)
	if err != nil {
		return err
	}
	m.mem, m.extra = regions[0], regions[1]
	m.shadow = make([]byte, m.region)
	m.ring = make([]mixOp, m.depth)
	m.signalled = -1
	var wcs [16]verbs.WC
	for m.complete < m.ops {
		if err := m.postSome(); err != nil {
			return err
		}
		n, err := m.end.await(wcs[:], mixPatience)
		if err != nil {
			return fmt.Errorf("operation %d of %d: %w", m.complete, m.ops, err)
		}
		for i := range wcs[:n] {
			if err := m.done(&wcs[i]); err != nil {
				return err
			}
		}
	}
	if err := m.readAll(); err != nil {
		return err
	}
	if err := m.finish(); err != nil {
		return err
	}
	return m.end.close()
}

// slotLen returns the length of the local memory of one operation. It is at least the eight bytes
// that atomics need.
func (m *mix) slotLen() int { return max(m.maxLen, 8) }

func (m *mix) slot(k int) []byte {
	n := m.slotLen()
	return m.end.buf[k%m.depth*n : (k%m.depth+1)*n]
}

// postSome posts a random number of operations, at most as many as the window has room for.
func (m *mix) postSome() error {
	room := min(m.depth-(m.posted-m.complete), m.ops-m.posted)
	if room == 0 {
		return nil
	}
	want := m.draw.between(1, room)
	// At least one operation in flight must be signalled, because the client waits for a
	// completion.
	for i := 0; i < room && (i < want || m.signalled < m.complete); i++ {
		wr := m.next(m.posted)
		if err := m.end.qp.PostSend(wr); err != nil {
			return fmt.Errorf("post of operation %d: %w", m.posted, err)
		}
		if wr.Flags&verbs.Signalled != 0 {
			m.signalled = m.posted
		}
		m.posted++
	}
	return nil
}

// wcOps gives the opcode of a requester's completion by that of its work request.
var wcOps = map[verbs.WROpcode]verbs.WCOpcode{
	verbs.OpSend: verbs.WCSend, verbs.OpSendImm: verbs.WCSend, verbs.OpSendInv: verbs.WCSend,
	verbs.OpWrite: verbs.WCWrite, verbs.OpWriteImm: verbs.WCWrite, verbs.OpRead: verbs.WCRead,
	verbs.OpCmpSwap: verbs.WCCmpSwap, verbs.OpFetchAdd: verbs.WCFetchAdd, verbs.OpAtomicWrite: verbs.WCAtomicWrite,
	verbs.OpFlush: verbs.WCFlush,
}

// done handles a completion: all operations up to this one are complete.
func (m *mix) done(wc *verbs.WC) error {
	if wc.Status != verbs.Success {
		return &perf.CompletionError{Op: "operation", Msg: wc.ID, Status: wc.Status, Vendor: wc.VendorErr}
	}
	if wc.ID < uint64(m.complete) || wc.ID >= uint64(m.posted) {
		return fmt.Errorf("completion of operation %d came when %d to %d were outstanding: order is broken", wc.ID, m.complete, m.posted-1)
	}
	if last := &m.ring[wc.ID%uint64(m.depth)]; wc.Opcode != wcOps[last.op] || wc.QPN != m.end.qp.QPN() {
		return fmt.Errorf("completion of operation %d (%v): opcode %v of QP %#x", wc.ID, last.op, wc.Opcode, wc.QPN)
	} else if last.op == verbs.OpRead && wc.ByteLen != uint32(last.n) {
		return fmt.Errorf("completion of READ %d: %d bytes, want %d", wc.ID, wc.ByteLen, last.n)
	}
	for ; m.complete <= int(wc.ID); m.complete++ {
		if err := m.judge(m.complete); err != nil {
			return err
		}
	}
	return nil
}

// judge checks the result of operation k.
func (m *mix) judge(k int) error {
	op := &m.ring[k%m.depth]
	b := m.slot(k)
	switch {
	case op.op == verbs.OpRead:
		for i, want := range op.expect {
			if b[i] != want {
				return &perf.DataError{Op: "READ, operation", Msg: uint64(k), Offset: i, Got: uint64(b[i]), Want: uint64(want)}
			}
		}
	case isAtomic(op.op):
		if got := binary.NativeEndian.Uint64(b); got != op.want {
			return &perf.DataError{Op: "atomic, operation", Msg: uint64(k), Offset: -1, Got: got, Want: op.want}
		}
	}
	return nil
}

// readAll READs the client's part of the server's memory and compares it with the shadow.
func (m *mix) readAll() error {
	for off := 0; off < m.region; off += m.maxLen {
		op := &m.ring[0]
		*op = mixOp{op: verbs.OpRead, off: off, n: min(m.maxLen, m.region-off)}
		op.expect = m.shadow[off : off+op.n]
		wr := verbs.SendWR{Op: verbs.OpRead, Flags: verbs.Signalled, SGL: []verbs.SGE{m.end.mr.SGE(0, op.n)}}
		m.aim(&wr, op)
		if err := m.single(wr, verbs.Success); err != nil {
			return fmt.Errorf("reading all back: %w", err)
		}
		m.posted, m.complete = 0, 0
		if err := m.judge(0); err != nil {
			return fmt.Errorf("reading all back at %d: %w", off, err)
		}
	}
	return nil
}

// single posts one work request and returns an error unless it completes with status want.
func (m *mix) single(wr verbs.SendWR, want verbs.Status) error {
	if err := m.end.qp.PostSend(wr); err != nil {
		return err
	}
	return m.expect(wr.ID, want)
}

// expect returns an error unless the next completion has this ID and one of the statuses in want.
func (m *mix) expect(id uint64, want ...verbs.Status) error {
	wc, err := m.end.one()
	if err != nil {
		return err
	}
	if wc.Status == verbs.RetryExcErr && !slices.Contains(want, wc.Status) {
		return &perf.CompletionError{Op: "work request", Msg: id, Status: wc.Status}
	}
	if !slices.Contains(want, wc.Status) || wc.ID != id {
		return fmt.Errorf("completion of %d is %v, want %d: %v", wc.ID, wc.Status, id, want)
	}
	return nil
}

// finish checks the state of the queue pair, and does the epilog that the seed has drawn.
func (m *mix) finish() error {
	attr, err := m.end.qp.Query()
	if err != nil {
		return err
	}
	if attr.State != verbs.StateRTS || attr.SendQueued != 0 {
		return fmt.Errorf("queue pair is in state %v with %d work requests queued, want RTS with none", attr.State, attr.SendQueued)
	}
	if m.epilog == endPlain {
		return nil
	}
	bad := remote{m.mem.addr, m.mem.rkey ^ 0x5a5a, 8}
	if m.epilog == endInvalidate {
		bad = m.extra
		wr := verbs.SendWR{ID: 99, Op: verbs.OpSendInv, Flags: verbs.Signalled, InvRKey: m.extra.rkey}
		m.sent++
		if err := m.single(wr, verbs.Success); err != nil {
			return fmt.Errorf("SEND with invalidate: %w", err)
		}
	}
	return m.refused(bad)
}

// refused posts a READ of the region bad, to which the client has no access, and two WRITEs behind
// it. The server must refuse the READ, and the WRITEs must be flushed.
func (m *mix) refused(bad remote) error {
	sgl := []verbs.SGE{m.end.mr.SGE(0, 8)}
	for id, op := range []verbs.WROpcode{verbs.OpRead, verbs.OpWrite, verbs.OpWrite} {
		wr := verbs.SendWR{ID: uint64(id), Op: op, SGL: sgl, RemoteAddr: bad.addr, RKey: bad.rkey, Flags: verbs.Fence}
		if err := m.end.qp.PostSend(wr); err != nil {
			return err
		}
	}
	first := []verbs.Status{verbs.RemAccessErr}
	if m.lossy {
		// After its NAK, the server's queue pair is in the error state and sends no more answers.
		// If the NAK is lost, the requester runs out of retries.
		first = append(first, verbs.RetryExcErr)
	}
	for id, want := range [][]verbs.Status{first, {verbs.WRFlushErr}, {verbs.WRFlushErr}} {
		if err := m.expect(uint64(id), want...); err != nil {
			return fmt.Errorf("after a READ of memory that was not granted: %w", err)
		}
	}
	attr, err := m.end.qp.Query()
	if err == nil && attr.State != verbs.StateError {
		err = fmt.Errorf("queue pair is in state %v after a remote access error, want ERROR", attr.State)
	}
	return err
}
