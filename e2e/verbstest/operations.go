package verbstest

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// inline returns a work request with inline data.
func inline(id uint64, op verbs.WROpcode, data string) verbs.SendWR {
	return verbs.SendWR{ID: id, Op: op, Flags: verbs.Inline | verbs.Signalled, Data: []byte(data)}
}

// testRC moves bytes by every operation of a reliable connection.
func testRC(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	data := strings.Repeat("rack", 2500)
	must(t, a.mr.WriteAt([]byte(data), 0))
	wc := a.post(qa, a.write(1, b, len(data)), verbs.Success)
	expect(t, wc.Opcode == verbs.WCWrite && wc.QPN == qa.QPN(), "WRITE: %+v", wc)
	holds(t, "WRITE", b.mr, 0, data)
	wc = a.post(qa, a.remote(2, verbs.OpRead, 20000, len(data), b.mr, 0), verbs.Success)
	expect(t, wc.Opcode == verbs.WCRead && wc.ByteLen == uint32(len(data)), "READ: %+v", wc)
	holds(t, "READ", a.mr, 20000, data)
	must(t, b.mr.Store64(40000, 40))
	atomic := verbs.SendWR{ID: 3, Op: verbs.OpFetchAdd, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(8, 8)}, RemoteAddr: b.mr.Addr() + 40000, RKey: b.mr.RKey(), CompareAdd: 2}
	a.post(qa, atomic, verbs.Success)
	atomic.ID, atomic.Op, atomic.CompareAdd, atomic.Swap = 4, verbs.OpCmpSwap, 42, 99
	a.post(qa, atomic, verbs.Success)
	before := need(a.mr.Load64(8))(t)
	if v, err := b.mr.Load64(40000); v != 99 || before != 42 || err != nil {
		t.Errorf("atomics: %d after %d, %v", v, before, err)
	}
	masked(t, a, b, qa)
	atomicWrite(t, a, b, qa)
	messages(t, a, b, qa, qb)
}

// masked tests masked atomics: a CMP_SWAP that compares and replaces only some bits of a word, and
// a FETCH_ADD on several fields of a word.
func masked(t *testing.T, a, b *end, qa verbs.QP) {
	t.Helper()
	must(t, b.mr.Store64(40000, 0x1111_2222_3333_fff0))
	wr := verbs.SendWR{
		ID: 70, Op: verbs.OpMaskedCmpSwap, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(8, 8)}, RemoteAddr: b.mr.Addr() + 40000, RKey: b.mr.RKey(),
		CompareAdd: 0x9999_2222_9999_9999, CompareAddMask: 0xffff_0000_0000, Swap: 0xabcd_abcd_abcd_abcd, SwapMask: 0xffff_0000_0000_0000,
	}
	steps := []struct {
		change     func()
		kind       verbs.WCOpcode
		was, after uint64
	}{
		{func() {}, verbs.WCMaskedCmpSwap, 0x1111_2222_3333_fff0, 0xabcd_2222_3333_fff0},
		{func() { wr.CompareAddMask |= 1 }, verbs.WCMaskedCmpSwap, 0xabcd_2222_3333_fff0, 0xabcd_2222_3333_fff0},
		{
			func() {
				wr.Op, wr.CompareAdd, wr.CompareAddMask = verbs.OpMaskedFetchAdd, 0x6000_0001_0000_0020, 0x8000_8000_8000_8000
			}, verbs.WCMaskedFetchAdd, 0xabcd_2222_3333_fff0, 0x0bcd_2223_3333_0010,
		},
	}
	for i, s := range steps {
		s.change()
		wr.ID++
		wc := a.post(qa, wr, verbs.Success)
		expect(t, wc.Opcode == s.kind && wc.ByteLen == 8, "step %d: %+v", i, wc)
		was := need(a.mr.Load64(8))(t)
		if after, err := b.mr.Load64(40000); was != s.was || after != s.after || err != nil {
			t.Errorf("step %d: %#x after %#x, %v; want %#x after %#x", i, after, was, err, s.after, s.was)
		}
	}
}

// atomicWrite writes a word by ATOMIC_WRITE, and checks that the words before and after it do not
// change.
func atomicWrite(t *testing.T, a, b *end, qa verbs.QP) {
	t.Helper()
	must(t, b.mr.WriteAt(bytes.Repeat([]byte{0xee}, 24), 40000))
	const word = 0x1122_3344_5566_7788
	wc := a.post(qa, verbs.SendWR{ID: 80, Op: verbs.OpAtomicWrite, Flags: verbs.Signalled, Swap: word, RemoteAddr: b.mr.Addr() + 40008, RKey: b.mr.RKey()}, verbs.Success)
	expect(t, wc.Opcode == verbs.WCAtomicWrite, "ATOMIC_WRITE: %+v", wc)
	for i, want := range []uint64{0xeeee_eeee_eeee_eeee, word, 0xeeee_eeee_eeee_eeee} {
		loads(t, "ATOMIC_WRITE", b.mr, 40000+8*i, want)
	}
}

// testFlush flushes what was written: a range, and a whole region. Each type of placement (global
// visibility, persistence) needs an access right of its own, of the region and of the queue pair.
func testFlush(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	flush := func(id uint64, mr verbs.MR, f verbs.Flush) verbs.SendWR {
		return verbs.SendWR{ID: id, Op: verbs.OpFlush, Flags: verbs.Signalled, RemoteAddr: mr.Addr() + 8, RKey: mr.RKey(), Flush: f}
	}
	must(t, a.mr.WriteAt([]byte("flushed!"), 0))
	put := a.write(1, b, 8)
	must(t, qa.PostSend(put, flush(2, b.mr, verbs.Flush{Length: memory - 8, Global: true}), flush(3, b.mr, verbs.Flush{Region: true, Persistent: true})))
	a.want(1, verbs.Success)
	for id := uint64(2); id <= 3; id++ {
		wc := a.want(id, verbs.Success)
		expect(t, wc.Opcode == verbs.WCFlush && wc.ByteLen == 0, "FLUSH: %+v", wc)
	}
	holds(t, "FLUSH", b.mr, 0, "flushed!")
	global := need(b.pd.RegMR(nil, 64, verbs.FlushGlobal))(t)
	for i, c := range []struct {
		mr   verbs.MR
		how  verbs.Flush
		want verbs.Status
	}{
		{global, verbs.Flush{Length: 56, Global: true}, verbs.Success},
		{global, verbs.Flush{Length: 57, Global: true}, verbs.RemAccessErr},
		{global, verbs.Flush{Region: true, Persistent: true}, verbs.RemAccessErr},
	} {
		a.post(qa, flush(uint64(10+i), c.mr, c.how), c.want)
		if c.want != verbs.Success {
			for _, q := range []verbs.QP{qa, qb} {
				must(t, q.ToReset())
			}
			a.connect(b, qa, qb)
		}
	}
	must(t, qb.Modify(verbs.QPModify{Mask: verbs.ModifyAccess, Access: verbs.RemoteWrite | verbs.FlushGlobal}))
	must(t, qa.PostSend(flush(20, b.mr, verbs.Flush{Region: true, Global: true}), flush(21, b.mr, verbs.Flush{Region: true, Persistent: true})))
	a.want(20, verbs.Success)
	a.want(21, verbs.RemInvReqErr)
}

// messages tests the operations that consume a receive.
func messages(t *testing.T, a, b *end, qa, qb verbs.QP) {
	for i := range uint64(4) {
		must(t, qb.PostRecv(verbs.RecvWR{ID: 10 + i, SGL: []verbs.SGE{b.mr.SGE(int(i)*64, 64)}}))
	}
	victim := need(b.pd.AllocFastMR(nil, 64))(t)
	wc := b.post(qb, b.register(9, victim, 0, 64, victim.RKey(), full), verbs.Success)
	expect(t, wc.Opcode == verbs.WCRegMR, "REG_MR: %+v", wc)
	imm, inv, put := inline(6, verbs.OpSendImm, "imm"), inline(7, verbs.OpSendInv, "inv"), inline(8, verbs.OpWriteImm, "put")
	imm.Imm, inv.InvRKey, put.Imm = 0xdeadbeef, victim.RKey(), 7
	put.RemoteAddr, put.RKey = b.mr.Addr()+500, b.mr.RKey()
	must(t, qa.PostSend(inline(5, verbs.OpSend, "hi"), imm, inv, put))
	for id := uint64(5); id <= 8; id++ {
		a.want(id, verbs.Success)
	}
	wc = b.want(10, verbs.Success)
	expect(t, wc.Opcode == verbs.WCRecv && wc.ByteLen == 2 && wc.Flags == 0 && wc.QPN == qb.QPN(), "SEND: %+v", wc)
	wc = b.want(11, verbs.Success)
	expect(t, wc.Flags == verbs.WithImm && wc.Imm == 0xdeadbeef, "SEND with immediate: %+v", wc)
	wc = b.want(12, verbs.Success)
	expect(t, wc.Flags == verbs.WithInv && wc.InvRKey == victim.RKey(), "SEND with invalidate: %+v", wc)
	wc = b.want(13, verbs.Success)
	expect(t, wc.Opcode == verbs.WCRecvWriteImm && wc.Imm == 7 && wc.ByteLen == 3, "WRITE with immediate: %+v", wc)
	holds(t, "WRITE with immediate", b.mr, 500, "put")
	holds(t, "SEND", b.mr, 0, "hi")
	must(t, victim.Dereg())
}

// testSizes transfers messages whose lengths are around multiples of the path MTU, with several
// SGEs at both ends.
func testSizes(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	r := a.ctx.Runtime().Rand()
	for _, n := range []int{0, 1, 3, 1023, 1024, 1025, 4096, 20000} {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		must(t, a.mr.WriteAt(data, 100))
		third := n / 3
		must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, third), b.mr.SGE(30000, n-third)}}))
		a.post(qa, verbs.SendWR{ID: 2, Flags: verbs.Signalled, SGL: []verbs.SGE{a.mr.SGE(100, n-third), a.mr.SGE(100+n-third, 0), a.mr.SGE(100+n-third, third)}}, verbs.Success)
		wc := b.want(1, verbs.Success)
		expect(t, wc.ByteLen == uint32(n), "%d bytes: %+v", n, wc)
		holds(t, fmt.Sprintf("%d bytes, first piece", n), b.mr, 0, string(data[:third]))
		holds(t, fmt.Sprintf("%d bytes, second piece", n), b.mr, 30000, string(data[third:]))
	}
}

// testUC moves bytes without acknowledgements.
func testUC(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.UC)
	must(t, qb.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}, verbs.RecvWR{ID: 2}))
	a.post(qa, inline(3, verbs.OpSend, "unreliable"), verbs.Success)
	wc := b.want(1, verbs.Success)
	expect(t, wc.ByteLen == 10, "SEND: %+v", wc)
	must(t, a.mr.WriteAt([]byte("payload"), 0))
	put := a.write(4, b, 7)
	put.Op, put.Imm = verbs.OpWriteImm, 9
	a.post(qa, put, verbs.Success)
	wc = b.want(2, verbs.Success)
	expect(t, wc.Imm == 9, "WRITE: %+v", wc)
	holds(t, "WRITE", b.mr, 0, "payload")
	wantErr(t, "READ on UC", qa.PostSend(verbs.SendWR{Op: verbs.OpRead}), verbs.ErrInvalid)
}

const qkey = 0x1234

// datagram makes a queue pair for datagrams and brings it to RTS. pkeyIndex is the index of its
// partition in the P_Key table.
func (e *end) datagram(pkeyIndex int) verbs.QP {
	e.t.Helper()
	q := e.qp(verbs.UD, nil)
	must(e.t, q.ToInit(verbs.ToInit{QKey: qkey, PKeyIndex: pkeyIndex}))
	must(e.t, q.ToRTR(verbs.ToRTR{}))
	must(e.t, q.ToRTS(verbs.ToRTS{}))
	return q
}

// testUD sends a datagram, and answers it by a datagram to the source address in its GRH.
func testUD(t *testing.T, w *World) {
	a, b := w.ends(t)
	ask, answer := a.datagram(0), b.datagram(0)
	ah := need(a.pd.CreateAH(verbs.AHAttr{DestGID: b.ctx.Device().GIDs[w.Family], SourceGID: w.Family, TrafficClass: 0x20, FlowLabel: 0x12345}))(t)
	if ah.Handle() == 0 {
		t.Error("an address handle without a number")
	}
	must(t, answer.PostRecv(verbs.RecvWR{ID: 1, SGL: []verbs.SGE{b.mr.SGE(0, 100)}}, verbs.RecvWR{ID: 2, SGL: []verbs.SGE{b.mr.SGE(200, 100)}}))
	ping := inline(3, verbs.OpSend, "ping")
	ping.AH, ping.RemoteQPN, ping.RemoteQKey = ah, answer.QPN(), qkey
	stray := ping
	stray.ID, stray.RemoteQKey = 4, qkey+1
	must(t, ask.PostSend(stray, ping))
	a.want(4, verbs.Success)
	a.want(3, verbs.Success)
	wc := b.want(1, verbs.Success)
	grh := make([]byte, verbs.GRHLen+4)
	must(t, b.mr.ReadAt(grh, 0))
	g := need(verbs.ParseGRH(grh))(t)
	if wc.Flags&verbs.WithGRH == 0 || wc.ByteLen != 44 || wc.SrcQPN != ask.QPN() || g.Source != a.ctx.Device().GIDs[w.Family] || g.TrafficClass != 0x20 || string(grh[40:]) != "ping" {
		t.Errorf("datagram: %+v from %+v: %q", wc, g, grh[40:])
	}
	if label := g.FlowLabel; label != 0x12345 && b.ctx.Device().GIDs[w.Family].Addr().Is6() {
		t.Errorf("flow label %#x", label)
	}
	wantErr(t, "flow label", second(a.pd.CreateAH(verbs.AHAttr{DestGID: b.ctx.Device().GIDs[w.Family], SourceGID: w.Family, FlowLabel: 1 << 20})), verbs.ErrInvalid)
	back := need(b.pd.CreateAH(verbs.AHAttr{DestGID: g.Source, SourceGID: w.Family}))(t)
	must(t, ask.PostRecv(verbs.RecvWR{ID: 5, SGL: []verbs.SGE{a.mr.SGE(0, 100)}}))
	pong := verbs.SendWR{ID: 6, Op: verbs.OpSendImm, Imm: 8, Flags: verbs.Signalled, SGL: []verbs.SGE{b.mr.SGE(40, 4)}, AH: back, RemoteQPN: wc.SrcQPN, RemoteQKey: qkey}
	b.post(answer, pong, verbs.Success)
	wc = a.want(5, verbs.Success)
	expect(t, wc.Imm == 8, "answer: %+v", wc)
	wantErr(t, "dealloc", a.pd.Dealloc(), verbs.ErrBusy)
	wantErr(t, "no address", ask.PostSend(inline(7, verbs.OpSend, "x")), verbs.ErrInvalid)
	must(t, ah.Destroy())
	wantErr(t, "second destroy", ah.Destroy(), verbs.ErrClosed)
	wantErr(t, "destroyed address", ask.PostSend(ping), verbs.ErrInvalid)
	nowhere := verbs.GID{10: 0xff, 11: 0xff, 12: 203, 13: 0, 14: 113, 15: 9}
	wantErr(t, "an address of no host", second(a.pd.CreateAH(verbs.AHAttr{DestGID: nowhere, SourceGID: w.Family})), verbs.ErrUnreachable)
}

// testSRQ lets two queue pairs take their receives from one shared receive queue.
func testSRQ(t *testing.T, w *World) {
	a, b := w.ends(t)
	srq := need(b.pd.CreateSRQ(verbs.SRQInit{MaxWR: 4, MaxSGE: 2}))(t)
	var from, to [2]verbs.QP
	for i := range from {
		from[i], to[i] = a.qp(verbs.RC, nil), b.qp(verbs.RC, func(q *verbs.QPInit) { q.SRQ = srq })
		a.connect(b, from[i], to[i])
	}
	for i := range uint64(4) {
		must(t, srq.PostRecv(verbs.RecvWR{ID: i, SGL: []verbs.SGE{b.mr.SGE(int(i)*100, 100)}}))
	}
	wantErr(t, "one too many", srq.PostRecv(verbs.RecvWR{}), verbs.ErrNoSpace)
	must(t, srq.SetLimit(3))
	attr := need(srq.Query())(t)
	expect(t, attr.MaxWR == 4 && attr.Queued == 4 && attr.Limit == 3 && attr.MaxSGE == 2, "attributes: %+v", attr)
	for i := range uint64(4) {
		a.post(from[i%2], inline(10+i, verbs.OpSend, "shared"), verbs.Success)
		wc := b.want(i, verbs.Success)
		expect(t, wc.QPN == to[i%2].QPN(), "message %d went to %#x", i, wc.QPN)
	}
	ev := b.event(verbs.EventSRQLimit)
	expect(t, ev.SRQ == attr.ID, "limit event of %d, want %d", ev.SRQ, attr.ID)
	wantErr(t, "receive on the queue pair", to[0].PostRecv(verbs.RecvWR{}), verbs.ErrInvalid)
	wantErr(t, "limit", srq.SetLimit(5), verbs.ErrInvalid)
	resized(t, a, b, srq, from[0])
	wantErr(t, "in use", srq.Destroy(), verbs.ErrBusy)
	must(t, to[0].ToError())
	ev = b.event(verbs.EventQPLastWQE)
	expect(t, ev.QPN == to[0].QPN(), "last receive of %#x, want %#x", ev.QPN, to[0].QPN())
	must(t, to[0].Destroy())
	must(t, to[1].Destroy())
	must(t, srq.Destroy())
	wantErr(t, "post to a destroyed queue", srq.PostRecv(verbs.RecvWR{}), verbs.ErrClosed)
	wantErr(t, "query of a destroyed queue", second(srq.Query()), verbs.ErrClosed)
	wantErr(t, "second destroy", srq.Destroy(), verbs.ErrClosed)
}

// resized enlarges a shared receive queue of 4 while receives are queued, and reduces it again.
func resized(t *testing.T, a, b *end, srq verbs.SRQ, from verbs.QP) {
	for i := range uint64(3) {
		must(t, srq.PostRecv(verbs.RecvWR{ID: i, SGL: []verbs.SGE{b.mr.SGE(int(i)*100, 60), b.mr.SGE(int(i)*100+60, 40)}}))
	}
	must(t, srq.SetLimit(2))
	wantErr(t, "fewer than are queued", srq.Resize(2), verbs.ErrInvalid)
	wantErr(t, "none", srq.Resize(0), verbs.ErrInvalid)
	must(t, srq.Resize(9))
	for i := uint64(3); i < 9; i++ {
		must(t, srq.PostRecv(verbs.RecvWR{ID: i, SGL: []verbs.SGE{b.mr.SGE(int(i)*100, 100)}}))
	}
	wantErr(t, "one too many", srq.PostRecv(verbs.RecvWR{}), verbs.ErrNoSpace)
	attr := need(srq.Query())(t)
	expect(t, attr.MaxWR == 9 && attr.Queued == 9 && attr.Limit == 2, "attributes: %+v", attr)
	for i := range uint64(9) {
		a.post(from, inline(20+i, verbs.OpSend, "resized"), verbs.Success)
		b.want(i, verbs.Success)
	}
	b.event(verbs.EventSRQLimit)
	must(t, srq.SetLimit(3))
	wantErr(t, "fewer than the limit", srq.Resize(2), verbs.ErrInvalid)
	must(t, srq.SetLimit(0))
	must(t, srq.Resize(1))
	must(t, srq.PostRecv(verbs.RecvWR{}))
	wantErr(t, "one too many", srq.PostRecv(verbs.RecvWR{}), verbs.ErrNoSpace)
}
