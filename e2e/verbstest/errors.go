package verbstest

import (
	"errors"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// testRefusedPosts posts lists with a work request that no queue accepts. The work requests before
// it in the list are accepted.
func testRefusedPosts(t *testing.T, w *World) {
	a, b := w.ends(t)
	q, peer := a.qp(verbs.RC, func(i *verbs.QPInit) { i.MaxSGE, i.MaxInline = 2, 16 }), b.qp(verbs.RC, nil)
	wantErr(t, "send in RESET", q.PostSend(inline(0, verbs.OpSend, "x")), verbs.ErrState)
	wantErr(t, "receive in RESET", q.PostRecv(verbs.RecvWR{}), verbs.ErrState)
	must(t, q.PostSend())
	must(t, q.ToInit(verbs.ToInit{}))
	wantErr(t, "send in INIT", q.PostSend(inline(0, verbs.OpSend, "x")), verbs.ErrState)
	must(t, q.ToReset())
	a.connect(b, q, peer)
	three := []verbs.SGE{a.mr.SGE(0, 1), a.mr.SGE(0, 1), a.mr.SGE(0, 1)}
	for what, wr := range map[string]verbs.SendWR{
		"too many pieces":   {SGL: three},
		"far too many":      {SGL: append(three, append(three, three...)...)},
		"too much inline":   {Flags: verbs.Inline, Data: make([]byte, 17)},
		"far too much":      {Flags: verbs.Inline, Data: make([]byte, 5000)},
		"inline and list":   {Flags: verbs.Inline, Data: []byte("x"), SGL: three[:1]},
		"inline READ":       {Op: verbs.OpRead, Flags: verbs.Inline, Data: []byte("x")},
		"unknown operation": {Op: 99},
		"atomic of 4 bytes": {Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.mr.SGE(0, 4)}, RemoteAddr: b.mr.Addr()},
		"masked of 4 bytes": {Op: verbs.OpMaskedCmpSwap, SGL: []verbs.SGE{a.mr.SGE(0, 4)}, RemoteAddr: b.mr.Addr()},
		"write askew":       {Op: verbs.OpAtomicWrite, RemoteAddr: b.mr.Addr() + 4},
		"flush of no kind":  {Op: verbs.OpFlush},
		"flush and list":    {Op: verbs.OpFlush, Flush: verbs.Flush{Global: true}, SGL: three[:1]},
		"masked askew":      {Op: verbs.OpMaskedFetchAdd, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + 4},
		"atomic askew":      {Op: verbs.OpFetchAdd, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RemoteAddr: b.mr.Addr() + 4},
	} {
		must(t, peer.PostRecv(verbs.RecvWR{ID: 5, SGL: []verbs.SGE{b.mr.SGE(0, 64)}}))
		wantIndex(t, what, q.PostSend(inline(1, verbs.OpSend, "good"), wr, inline(2, verbs.OpSend, "never")), verbs.ErrInvalid, 1)
		a.want(1, verbs.Success)
		b.want(5, verbs.Success)
	}
	wantIndex(t, "receive with too many pieces", q.PostRecv(verbs.RecvWR{}, verbs.RecvWR{SGL: []verbs.SGE{{}, {}, {}}}), verbs.ErrInvalid, 1)
	a.none()
	attr := need(q.Query())(t)
	expect(t, attr.RecvQueued == 1 && attr.SendQueued == 0, "%d sends and %d receives are queued", attr.SendQueued, attr.RecvQueued)
}

// testBounds fills queues up to their requested sizes; one more work request is refused.
func testBounds(t *testing.T, w *World) {
	a, b := w.ends(t)
	q, peer := a.joined(b, verbs.RC, func(i *verbs.QPInit) { i.MaxSendWR, i.MaxRecvWR = 5, 3 })
	must(t, q.ToSQD())
	for range 5 {
		must(t, q.PostSend(inline(1, verbs.OpSend, "x")))
	}
	wantErr(t, "sixth send", q.PostSend(inline(1, verbs.OpSend, "x")), verbs.ErrNoSpace)
	wantIndex(t, "fourth receive", q.PostRecv(make([]verbs.RecvWR, 4)...), verbs.ErrNoSpace, 3)
	attr := need(q.Query())(t)
	expect(t, attr.SendQueued == 5 && attr.RecvQueued == 3, "%d sends and %d receives are queued", attr.SendQueued, attr.RecvQueued)
	must(t, peer.PostRecv(make([]verbs.RecvWR, 5)...))
}

// testLongLists posts more work requests at once than any ring between application and NIC has room
// for.
func testLongLists(t *testing.T, w *World) {
	a, b := w.ends(t)
	const n = 500
	deep := func(i *verbs.QPInit) { i.MaxSendWR, i.MaxRecvWR = n, n }
	q, peer := a.qp(verbs.RC, deep), b.qp(verbs.RC, deep)
	a.connect(b, q, peer)
	sends, recvs := make([]verbs.SendWR, n+1), make([]verbs.RecvWR, n+1)
	for i := range sends {
		sends[i], recvs[i] = inline(uint64(i), verbs.OpSend, "x"), verbs.RecvWR{ID: uint64(i), SGL: []verbs.SGE{b.mr.SGE(i, 1)}}
	}
	wantIndex(t, "receives", peer.PostRecv(recvs...), verbs.ErrNoSpace, n)
	must(t, q.PostSend(sends[:n]...))
	for i := range uint64(n) {
		a.want(i, verbs.Success)
		b.want(i, verbs.Success)
	}
	holds(t, "receives", b.mr, 0, strings.Repeat("x", n))
}

// testRefusedObjects requests objects with attributes that every NIC refuses.
func testRefusedObjects(t *testing.T, w *World) {
	a := w.end(t, 0)
	dev := a.ctx.Device()
	with := func(change func(*verbs.QPInit)) error {
		init := verbs.QPInit{SendCQ: a.cq, RecvCQ: a.cq}
		change(&init)
		return second(a.pd.CreateQP(init))
	}
	wantErrs(t, verbs.ErrInvalid, map[string]error{
		"CQ of depth 0":  second(a.ctx.CreateCQ(0)),
		"CQ of depth -1": second(a.ctx.CreateCQ(-1)),
		"no send CQ":     with(func(i *verbs.QPInit) { i.SendCQ = nil }),
		"no receive CQ":  with(func(i *verbs.QPInit) { i.RecvCQ = nil }),
		"negative depth": with(func(i *verbs.QPInit) { i.MaxSendWR = -1 }),
		"negative SGE":   with(func(i *verbs.QPInit) { i.MaxSGE = -1 }),
		"SRQ":            second(a.pd.CreateSRQ(verbs.SRQInit{MaxWR: -1})),
		"device memory":  second(a.ctx.AllocDM(0)),
	})
	for what, err := range map[string]error{
		"deep CQ":  second(a.ctx.CreateCQ(dev.MaxCQE + 1)),
		"deep QP":  with(func(i *verbs.QPInit) { i.MaxSendWR = dev.MaxQPWR + 1 }),
		"long SGL": with(func(i *verbs.QPInit) { i.MaxSGE = dev.MaxSGE + 1 }),
		"inline":   with(func(i *verbs.QPInit) { i.MaxInline = dev.MaxInline + 1 }),
		"SRQ":      second(a.pd.CreateSRQ(verbs.SRQInit{MaxWR: dev.MaxQPWR + 1})),
	} {
		wantErr(t, what, err, verbs.ErrLimit)
	}
	wantErr(t, "type", with(func(i *verbs.QPInit) { i.Type = 9 }), verbs.ErrNotSupported)
	q := a.qp(verbs.RC, nil)
	wantErr(t, "RESET to RTS", q.ToRTS(verbs.ToRTS{}), verbs.ErrState)
	must(t, q.ToInit(verbs.ToInit{}))
	wantErr(t, "no way", q.ToRTR(verbs.ToRTR{DestGID: verbs.GID{10: 0xff, 11: 0xff, 12: 203, 15: 1}, SourceGID: w.Family, PathMTU: verbs.MTU1024}), verbs.ErrUnreachable)
	wantErr(t, "path MTU", q.ToRTR(verbs.ToRTR{DestGID: dev.GIDs[w.Family], SourceGID: w.Family, PathMTU: 1000}), verbs.ErrInvalid)
}

// testDestroy destroys objects in every wrong order, and then in the right one.
func testDestroy(t *testing.T, w *World) {
	a := w.end(t, 0)
	q := a.qp(verbs.RC, nil)
	wantErr(t, "CQ in use", a.cq.Destroy(), verbs.ErrBusy)
	wantErr(t, "PD in use", a.pd.Dealloc(), verbs.ErrBusy)
	must(t, q.Destroy())
	wantErr(t, "PD with a region", a.pd.Dealloc(), verbs.ErrBusy)
	must(t, a.cq.Destroy())
	must(t, a.mr.Dereg())
	must(t, a.pd.Dealloc())
	var wc [1]verbs.WC
	wantErrs(t, verbs.ErrClosed, map[string]error{
		"PD again": a.pd.Dealloc(), "CQ again": a.cq.Destroy(), "QP again": q.Destroy(), "MR again": a.mr.Dereg(),
		"poll": second(a.cq.Poll(wc[:])), "arm": a.cq.Arm(false), "wait": a.cq.Wait(a.in(patience)), "event": a.cq.WaitEvent(a.in(patience)),
		"query": second(q.Query()), "send": q.PostSend(inline(0, verbs.OpSend, "x")), "receive": q.PostRecv(verbs.RecvWR{}),
		"init": q.ToInit(verbs.ToInit{}), "error": q.ToError(), "reset": q.ToReset(),
		"region": second(a.pd.RegMR(nil, 64, full)),
	})
}

// testForeign uses objects of another context, and a region of another protection domain. Both are
// refused.
func testForeign(t *testing.T, w *World) {
	a, b := w.ends(t)
	wantErr(t, "CQ", second(a.pd.CreateQP(verbs.QPInit{SendCQ: b.cq, RecvCQ: a.cq})), verbs.ErrInvalid)
	srq := need(b.pd.CreateSRQ(verbs.SRQInit{}))(t)
	wantErr(t, "SRQ", second(a.pd.CreateQP(verbs.QPInit{SendCQ: a.cq, RecvCQ: a.cq, SRQ: srq})), verbs.ErrInvalid)
	dm := need(b.ctx.AllocDM(64))(t)
	wantErr(t, "device memory", second(a.pd.RegDM(dm, 0, 64, full)), verbs.ErrInvalid)
	ah := need(b.pd.CreateAH(verbs.AHAttr{DestGID: a.ctx.Device().GIDs[w.Family], SourceGID: w.Family}))(t)
	q := a.datagram(0)
	wr := inline(0, verbs.OpSend, "x")
	wr.AH, wr.RemoteQPN, wr.RemoteQKey = ah, q.QPN(), qkey
	wantErr(t, "address handle", q.PostSend(wr), verbs.ErrInvalid)
	// The keys of one protection domain are not valid in another.
	other := need(a.ctx.AllocPD())(t)
	stranger := need(other.RegMR(nil, 64, full))(t)
	qa, _ := a.joined(b, verbs.RC, nil)
	a.post(qa, verbs.SendWR{ID: 1, SGL: []verbs.SGE{stranger.SGE(0, 8)}}, verbs.LocProtErr)
}

// statusCase provokes the completion status want at the requester.
type statusCase struct {
	want verbs.Status
	// a posts the work request post. b first posts the receives of recv, if there are any; at is the
	// status with which the receive completes.
	at   verbs.Status
	recv []verbs.RecvWR
	post verbs.SendWR
}

// testStatuses provokes every status that an application can provoke over a link without faults.
func testStatuses(t *testing.T, w *World) {
	a, b := w.ends(t)
	bad, send := verbs.SGE{Addr: 4096, Length: 8, LKey: 1}, verbs.SendWR{SGL: []verbs.SGE{a.mr.SGE(0, 8)}}
	key, bounds := a.write(0, b, 8), a.remote(0, verbs.OpWrite, 0, 8, b.mr, memory)
	key.RKey ^= 0x5500
	for name, c := range map[string]statusCase{
		"local protection":      {want: verbs.LocProtErr, post: verbs.SendWR{Op: verbs.OpWrite, SGL: []verbs.SGE{bad}}},
		"remote access, key":    {want: verbs.RemAccessErr, post: key},
		"remote access, bounds": {want: verbs.RemAccessErr, post: bounds},
		"remote invalid request": {
			want: verbs.RemInvReqErr, at: verbs.LocLenErr, recv: []verbs.RecvWR{{ID: 9, SGL: []verbs.SGE{b.mr.SGE(0, 4)}}}, post: send,
		},
		"remote operation": {want: verbs.RemOpErr, at: verbs.LocProtErr, recv: []verbs.RecvWR{{ID: 9, SGL: []verbs.SGE{bad}}}, post: send},
		"RNR retries":      {want: verbs.RNRRetryExcErr, post: send},
		"window bind":      {want: verbs.MWBindErr, post: verbs.SendWR{Op: verbs.OpBindMW, SGL: []verbs.SGE{a.mr.SGE(0, 8)}, RKey: 0x1234}},
	} {
		t.Run(name, func(t *testing.T) { c.run(t, a, b) })
	}
	t.Run("retries", func(t *testing.T) {
		q, peer := a.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
		a.up(0, q, b, peer, func(r *verbs.ToRTS) { r.Timeout, r.RetryCount = 8, 2 })
		must(t, q.PostSend(a.write(1, b, 8))) // there is no response, because the peer is in RESET
		a.want(1, verbs.RetryExcErr)
		a.becomes(q, verbs.StateError)
		must(t, q.Destroy())
		must(t, peer.Destroy())
	})
}

func (c *statusCase) run(t *testing.T, a, b *end) {
	q, peer := a.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
	a.up(0, q, b, peer, func(r *verbs.ToRTS) { r.RNRRetry = 1 })
	b.up(0, peer, a, q, func(*verbs.ToRTS) {})
	if c.recv != nil {
		must(t, peer.PostRecv(c.recv...))
	}
	wr := c.post
	wr.ID, wr.Flags = 1, verbs.Signalled
	must(t, q.PostSend(wr))
	must(t, q.PostSend(inline(2, verbs.OpSend, "behind")))
	a.want(1, c.want)
	a.want(2, verbs.WRFlushErr)
	if c.at != verbs.Success {
		b.want(9, c.at)
		b.becomes(peer, verbs.StateError)
	}
	a.becomes(q, verbs.StateError)
	must(t, q.Destroy())
	must(t, peer.Destroy())
}

// testFlushed takes a queue pair with queued work requests to the error state, which flushes them.
// Work requests that are posted later are flushed, too.
func testFlushed(t *testing.T, w *World) {
	a, _, qa, _ := w.pair(t, verbs.RC)
	must(t, qa.PostRecv(verbs.RecvWR{ID: 1}, verbs.RecvWR{ID: 2}))
	must(t, qa.ToSQD())
	must(t, qa.PostSend(verbs.SendWR{ID: 3, Flags: verbs.Inline, Data: []byte("x")}))
	must(t, qa.ToError())
	seen := map[uint64]verbs.Status{}
	for range 3 {
		wc := a.next()
		seen[wc.ID] = wc.Status
	}
	must(t, qa.PostSend(inline(4, verbs.OpSend, "x")))
	must(t, qa.PostRecv(verbs.RecvWR{ID: 5}))
	for range 2 {
		wc := a.next()
		seen[wc.ID] = wc.Status
	}
	for id := uint64(1); id <= 5; id++ {
		if s, ok := seen[id]; !ok || s != verbs.WRFlushErr {
			t.Errorf("work request %d: %v, %v", id, s, ok)
		}
	}
	wantErr(t, "to RTS from ERROR", qa.ToRTS(verbs.ToRTS{}), verbs.ErrState)
}

// testReset resets a queue pair, which drops completions that were not polled, and connects it
// again.
func testReset(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	other, _ := a.joined(b, verbs.RC, nil)
	for i := range uint64(3) {
		must(t, qa.PostSend(a.write(i, b, 8)))
		must(t, other.PostSend(a.write(100+i, b, 8)))
	}
	for q, end := range map[verbs.QP]*end{qa: a, other: a} {
		for done := end.in(patience); ; end.ctx.Runtime().Sleep(1e6) {
			attr := need(q.Query())(t)
			if attr.SendQueued == 0 {
				break
			}
			if end.ctx.Runtime().Now() > done {
				t.Fatal("the work requests do not complete")
			}
		}
	}
	must(t, qa.ToReset())
	for i := range uint64(3) {
		a.want(100+i, verbs.Success)
	}
	a.none()
	must(t, qb.ToReset())
	a.connect(b, qa, qb)
	a.post(qa, a.write(7, b, 8), verbs.Success)
	must(t, qa.PostSend(a.write(8, b, 8)))
	must(t, a.cq.Wait(a.in(patience)))
	must(t, qa.Destroy())
	a.none()
}

// testDrain takes a queue pair to the state SQD, which drains the send queue, and back to RTS.
func testDrain(t *testing.T, w *World) {
	a, b, qa, _ := w.pair(t, verbs.RC)
	a.post(qa, a.write(1, b, 8), verbs.Success)
	must(t, qa.ToSQD())
	ev := a.event(verbs.EventSQDrained)
	expect(t, ev.QPN == qa.QPN(), "drained: %#x, want %#x", ev.QPN, qa.QPN())
	must(t, qa.PostSend(a.write(2, b, 8)))
	a.none()
	must(t, qa.ResumeRTS())
	a.want(2, verbs.Success)
	if err := qa.ResumeRTS(); err != nil && !errors.Is(err, verbs.ErrState) {
		t.Error(err)
	}
}

// testModify changes attributes of a connected queue pair.
func testModify(t *testing.T, w *World) {
	a, b, qa, qb := w.pair(t, verbs.RC)
	must(t, qb.Modify(verbs.QPModify{Mask: verbs.ModifyAccess | verbs.ModifyRNRTimer, Access: verbs.RemoteRead, MinRNRTimer: 7}))
	attr := need(qb.Query())(t)
	expect(t, attr.Init.Access == verbs.RemoteRead && attr.RTR.MinRNRTimer == 7, "attributes: %+v", attr)
	wantErr(t, "retries in RTS", qb.Modify(verbs.QPModify{Mask: verbs.ModifyRetryCount, RetryCount: 1}), verbs.ErrState)
	wantErr(t, "Q_Key of RC", qb.Modify(verbs.QPModify{Mask: verbs.ModifyQKey}), verbs.ErrInvalid)
	wantErr(t, "RNR timer", qb.Modify(verbs.QPModify{Mask: verbs.ModifyRNRTimer, MinRNRTimer: 32}), verbs.ErrInvalid)
	a.post(qa, a.remote(1, verbs.OpRead, 0, 8, b.mr, 0), verbs.Success)
	must(t, qa.ToSQD())
	a.event(verbs.EventSQDrained)
	must(t, qa.Modify(verbs.QPModify{Mask: verbs.ModifyTimeout | verbs.ModifyRetryCount | verbs.ModifyRNRRetry, Timeout: 18, RetryCount: 5, RNRRetry: 3}))
	moved := verbs.AHAttr{DestGID: b.ctx.Device().GIDs[w.Family], SourceGID: w.Family, TrafficClass: 4}
	most := a.ctx.Device().MaxRdAtomic
	const inSQD = verbs.ModifyDest | verbs.ModifyPKey | verbs.ModifyMaxRdAtomic | verbs.ModifyMaxDestRdAtomic
	wantErr(t, "READs in flight", qa.Modify(verbs.QPModify{Mask: inSQD, Dest: moved, MaxRdAtomic: most + 1}), verbs.ErrLimit)
	wantErr(t, "P_Key index", qa.Modify(verbs.QPModify{Mask: inSQD, Dest: moved, PKeyIndex: len(a.ctx.Device().PKeys)}), verbs.ErrInvalid)
	must(t, qa.Modify(verbs.QPModify{Mask: inSQD, Dest: moved, MaxRdAtomic: 1, MaxDestRdAtomic: 2}))
	wantErr(t, "path in RTS", qb.Modify(verbs.QPModify{Mask: verbs.ModifyDest, Dest: moved}), verbs.ErrState)
	must(t, qa.ResumeRTS())
	attr = need(qa.Query())(t)
	expect(t, attr.RTS.Timeout == 18 && attr.RTS.RetryCount == 5 && attr.RTS.RNRRetry == 3 && !attr.Draining, "attributes: %+v", attr)
	expect(t, attr.RTS.MaxRdAtomic == 1 && attr.RTR.MaxDestRdAtomic == 2 && attr.RTR.TrafficClass == 4, "attributes: %+v", attr)
	a.post(qa, a.remote(3, verbs.OpRead, 0, 8, b.mr, 0), verbs.Success)
	a.post(qa, a.write(2, b, 8), verbs.RemInvReqErr)
	b.becomes(qb, verbs.StateError)
	wantErr(t, "in the error state", qb.Modify(verbs.QPModify{Mask: verbs.ModifyAccess}), verbs.ErrState)

	d, peer := b.datagram(0), a.datagram(0)
	must(t, d.PostRecv(verbs.RecvWR{ID: 3, SGL: []verbs.SGE{b.mr.SGE(0, 100)}}))
	ah := need(a.pd.CreateAH(verbs.AHAttr{DestGID: b.ctx.Device().GIDs[w.Family], SourceGID: w.Family}))(t)
	must(t, d.Modify(verbs.QPModify{Mask: verbs.ModifyQKey, QKey: qkey + 1}))
	old := inline(4, verbs.OpSend, "old")
	old.AH, old.RemoteQPN, old.RemoteQKey = ah, d.QPN(), qkey
	fresh := old
	fresh.ID, fresh.RemoteQKey, fresh.Data = 5, qkey+1, []byte("fresh")
	must(t, peer.PostSend(old, fresh))
	wc := b.want(3, verbs.Success)
	expect(t, wc.ByteLen == verbs.GRHLen+5, "datagram: %+v", wc)
}
