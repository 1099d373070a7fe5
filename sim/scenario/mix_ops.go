package scenario

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// next draws operation number k, applies it to the shadow (the bytes that the server's memory must
// have), and returns its work request.
func (m *mix) next(k int) verbs.SendWR {
	d := m.draw
	op := &m.ring[k%m.depth]
	*op = mixOp{}
	wr := verbs.SendWR{ID: uint64(k)}
	switch d.IntN(8) {
	case 0, 1:
		m.write(k, op, &wr)
	case 2, 3:
		m.read(k, op, &wr)
	case 4, 5:
		if d.IntN(8) == 0 {
			m.flush(op, &wr)
		} else {
			m.atomic(k, op, &wr)
		}
	default:
		m.send(k, op, &wr)
	}
	// Each half of the window has at least one signalled operation, because the window moves only with
	// completions.
	if k == m.ops-1 || d.IntN(3) == 0 || (k+1)%max(1, m.depth/2) == 0 {
		wr.Flags |= verbs.Signalled
	}
	if d.IntN(10) == 0 {
		wr.Flags |= verbs.Fence
	}
	if (op.op == verbs.OpWrite || op.op == verbs.OpWriteImm || op.op == verbs.OpAtomicWrite || isAtomic(op.op)) && m.overlapsRead(k, op) {
		wr.Flags |= verbs.Fence
	}
	if wr.Flags&verbs.Inline == 0 {
		wr.SGL = m.pieces(k, op)
	}
	return wr
}

// pieces splits the local memory of operation k into up to three SGEs.
func (m *mix) pieces(k int, op *mixOp) []verbs.SGE {
	base := k % m.depth * m.slotLen()
	switch {
	case op.op == verbs.OpAtomicWrite, op.op == verbs.OpFlush:
		return nil
	case isAtomic(op.op):
		return []verbs.SGE{m.end.mr.SGE(base, 8)}
	}
	var out []verbs.SGE
	at := 0
	for i := m.draw.between(1, maxPieces); i > 1 && at < op.n; i-- {
		n := m.draw.IntN(op.n - at + 1)
		out = append(out, m.end.mr.SGE(base+at, n))
		at += n
	}
	if at < op.n {
		out = append(out, m.end.mr.SGE(base+at, op.n-at))
	}
	return out
}

func (m *mix) place(op *mixOp, size int) {
	op.n = min(size, m.region)
	op.off = m.draw.IntN(m.region - op.n + 1)
}

func (m *mix) aim(wr *verbs.SendWR, op *mixOp) {
	wr.RemoteAddr, wr.RKey = m.mem.addr+uint64(op.off), m.mem.rkey
}

func (m *mix) write(k int, op *mixOp, wr *verbs.SendWR) {
	m.place(op, m.draw.size(m.mtu, m.maxLen))
	op.op, wr.Op = verbs.OpWrite, verbs.OpWrite
	m.aim(wr, op)
	b := m.slot(k)[:op.n]
	m.fill.Fill(b, uint64(k))
	copy(m.shadow[op.off:], b)
	m.maybeInline(k, op, wr)
}

// maybeInline sends some short payloads inline. It then overwrites their buffer, which the NIC must
// not read any more after the post.
func (m *mix) maybeInline(k int, op *mixOp, wr *verbs.SendWR) {
	if op.n > maxInline || m.draw.IntN(2) == 0 {
		return
	}
	wr.Flags |= verbs.Inline
	wr.Data = append([]byte(nil), m.slot(k)[:op.n]...)
	clear(m.slot(k))
}

func (m *mix) read(k int, op *mixOp, wr *verbs.SendWR) {
	m.place(op, m.draw.size(m.mtu, m.maxLen))
	if last := &m.ring[(k+m.depth-1)%m.depth]; k > 0 && m.draw.IntN(2) == 0 && last.op != verbs.OpSend && last.op != verbs.OpSendImm {
		op.off, op.n = last.off, last.n // the bytes that the operation before this one has written or read
	}
	op.op, wr.Op = verbs.OpRead, verbs.OpRead
	m.aim(wr, op)
	op.expect = append([]byte(nil), m.shadow[op.off:op.off+op.n]...)
	clear(m.slot(k))
}

// flush makes a FLUSH of a range of the client's memory, or of the whole region.
func (m *mix) flush(op *mixOp, wr *verbs.SendWR) {
	m.place(op, m.draw.size(m.mtu, m.maxLen))
	op.op, wr.Op = verbs.OpFlush, verbs.OpFlush
	m.aim(wr, op)
	wr.Flush = verbs.Flush{Length: uint32(op.n), Region: m.draw.IntN(2) == 0, Global: true}
}

func (m *mix) atomic(k int, op *mixOp, wr *verbs.SendWR) {
	op.n, op.off = 8, m.draw.IntN(m.region/8)*8
	m.aim(wr, op)
	word := m.shadow[op.off:]
	op.want = binary.NativeEndian.Uint64(word)
	clear(m.slot(k)[:8])
	m.atomics++
	if m.draw.IntN(4) == 0 {
		op.op, wr.Op, wr.Swap = verbs.OpAtomicWrite, verbs.OpAtomicWrite, m.draw.Uint64()
		binary.NativeEndian.PutUint64(word, wr.Swap)
		return
	}
	if m.draw.IntN(2) == 0 {
		op.op, wr.Op, wr.CompareAdd = verbs.OpFetchAdd, verbs.OpFetchAdd, m.draw.Uint64()
		binary.NativeEndian.PutUint64(word, op.want+wr.CompareAdd)
		return
	}
	op.op, wr.Op, wr.CompareAdd, wr.Swap = verbs.OpCmpSwap, verbs.OpCmpSwap, op.want, m.draw.Uint64()
	if m.draw.IntN(4) == 0 {
		wr.CompareAdd++ // makes the comparison fail
		return
	}
	binary.NativeEndian.PutUint64(word, wr.Swap)
}

// send makes the work request of the next message, which consumes a receive at the server.
func (m *mix) send(k int, op *mixOp, wr *verbs.SendWR) {
	kind, size, imm := m.message(m.sent)
	op.op, wr.Op, wr.Imm, op.n = kind, kind, imm, size
	b := m.slot(k)[:size]
	m.msgs.Fill(b, uint64(m.sent))
	m.sent++
	if kind == verbs.OpWriteImm {
		m.place(op, size)
		m.aim(wr, op)
		copy(m.shadow[op.off:], b[:op.n])
	}
	if m.draw.IntN(4) == 0 {
		wr.Flags |= verbs.Solicited
	}
	m.maybeInline(k, op, wr)
}

// overlapsRead reports whether operation k touches bytes that a READ in flight reads, so that it
// needs a fence.
func (m *mix) overlapsRead(k int, op *mixOp) bool {
	for j := m.complete; j < k; j++ {
		o := &m.ring[j%m.depth]
		if o.op == verbs.OpRead && op.off < o.off+o.n && o.off < op.off+op.n {
			return true
		}
	}
	return false
}

func isAtomic(op verbs.WROpcode) bool { return op == verbs.OpCmpSwap || op == verbs.OpFetchAdd }

// serve is the server's side of the mix: it gives the client two memory regions, receives messages
// and compares them, until its queue pair is in the error state.
func (m *mix) serve(ctx verbs.Context, l rdmacm.Listener) error {
	n := m.slotLen()
	end, err := newEnds(ctx, m.recvs*n, m.recvs, verbs.LocalWrite)
	if err != nil {
		return err
	}
	const all = verbs.LocalWrite | verbs.RemoteRights
	mem, err := end.pd.RegMR(nil, m.region, all)
	if err != nil {
		return err
	}
	extra, err := end.pd.AllocFastMR(nil, 8) // the region that the client may invalidate
	if err != nil {
		return err
	}
	if err := accept(ctx, l, end.qp, m.params, remoteOf(mem), remoteOf(extra)); err != nil {
		return err
	}
	if err := end.qp.PostSend(verbs.SendWR{Op: verbs.OpRegMR, SGL: []verbs.SGE{extra.SGE(0, 8)}, RKey: extra.RKey(), BindAccess: all}); err != nil {
		return err
	}
	recv := func(i int) error {
		cut := max(1, i*7%n)
		return end.qp.PostRecv(verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{end.mr.SGE(i*n, cut), end.mr.SGE(i*n+cut, n-cut)}})
	}
	for i := range m.recvs {
		if err := recv(i); err != nil {
			return err
		}
	}
	for wc, err := range received(end.cq) {
		if err != nil {
			return err
		}
		if wc.Status != verbs.Success {
			break // the server has refused a request, as it must (see mix.refused), so its queue pair has failed
		}
		i := int(wc.ID)
		if err := m.take(wc, end.buf[i*n:(i+1)*n], extra); err != nil {
			return err
		}
		if m.late {
			end.rt.Sleep(m.draw.span(0, 300*time.Microsecond))
		}
		if err := recv(i); err != nil {
			return err
		}
	}
	return nil
}

// take compares a received message with the planned message of the same number, or checks a SEND
// with invalidate.
func (m *mix) take(wc *verbs.WC, buf []byte, extra verbs.MR) error {
	n := m.received
	m.received++
	if wc.Flags&verbs.WithInv != 0 {
		if wc.InvRKey != extra.RKey() {
			return fmt.Errorf("message %d invalidated %#x, want %#x", n, wc.InvRKey, extra.RKey())
		}
		return nil
	}
	op, size, imm := m.message(n)
	if op == verbs.OpSend {
		imm = 0
	}
	return arrived(wc, buf, m.msgs, n, op, size, imm)
}
