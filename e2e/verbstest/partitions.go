package verbstest

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// testPartitions sends in two partitions in which the NICs can communicate, and in one in which
// both are limited members. Packets of the latter are dropped without an answer, so connections and
// datagrams see them as lost.
func testPartitions(t *testing.T, w *World) {
	a, b := w.ends(t)
	for i, e := range []*end{a, b} {
		if got := e.ctx.Device().PKeys; !slices.Equal(got, PKeys[i]) {
			t.Fatalf("NIC %d has the P_Keys %#x, want %#x", i, got, PKeys[i])
		}
	}
	q := a.qp(verbs.RC, nil)
	for _, index := range []int{-1, len(PKeys[0])} {
		wantErr(t, "no such P_Key", q.ToInit(verbs.ToInit{PKeyIndex: index}), verbs.ErrInvalid)
	}
	must(t, q.Destroy())
	for index, status := range []verbs.Status{verbs.Success, verbs.Success, verbs.RetryExcErr} {
		qa, qb := a.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
		short := func(rts *verbs.ToRTS) { rts.Timeout, rts.RetryCount = 8, 1 }
		if status == verbs.Success {
			short = func(*verbs.ToRTS) {}
		}
		a.up(index, qa, b, qb, short)
		b.up(index, qb, a, qa, short)
		a.post(qa, a.write(1, b, 8), status)
		if attr, err := qb.Query(); err != nil || attr.Init.PKeyIndex != index {
			t.Errorf("the queue pair has P_Key index %d, want %d: %v", attr.Init.PKeyIndex, index, err)
		}
		must(t, qa.Destroy())
		must(t, qb.Destroy())
	}
	testDatagramPartitions(t, w, a, b)
	testDialPartitions(t, w, a, b)
}

// testDatagramPartitions sends a datagram in each partition, and then one in the first partition.
// When the second datagram has arrived, the first one would have arrived, too, if it was not
// dropped.
func testDatagramPartitions(t *testing.T, w *World, a, b *end) {
	ah := need(a.pd.CreateAH(verbs.AHAttr{DestGID: b.ctx.Device().GIDs[w.Family], SourceGID: w.Family}))(t)
	for index, arrives := range []bool{true, true, false} {
		from, to, other := a.datagram(index), b.datagram(index), b.datagram(0)
		control := a.datagram(0)
		for i, q := range []verbs.QP{to, other} {
			must(t, q.PostRecv(verbs.RecvWR{ID: uint64(10 + i), SGL: []verbs.SGE{b.mr.SGE(1000*i, 200)}}))
		}
		send := func(q, peer verbs.QP) {
			t.Helper()
			a.post(q, verbs.SendWR{ID: 1, Flags: verbs.Inline | verbs.Signalled, Data: []byte("x"), AH: ah, RemoteQPN: peer.QPN(), RemoteQKey: qkey}, verbs.Success)
		}
		send(from, to)
		if arrives {
			b.want(10, verbs.Success)
		}
		send(control, other)
		b.want(11, verbs.Success)
		for _, q := range []verbs.QP{from, to, other, control} {
			must(t, q.Destroy())
		}
	}
	must(t, ah.Destroy())
}

// testDialPartitions makes connections by the connection manager, in the partition that the
// initiator names.
func testDialPartitions(t *testing.T, w *World, a, b *end) {
	if w.Managers[0] == nil {
		return
	}
	l := need(w.Managers[1].Listen("partitions"))(t)
	qa, qb := a.qp(verbs.RC, nil), b.qp(verbs.RC, nil)
	accepted := make(chan error, 1)
	go func() {
		r, err := l.Accept(b.in(patience))
		if err == nil {
			err = r.Accept(qb, rdmacm.Params{}, nil, b.in(patience))
		}
		accepted <- err
	}()
	to := b.ctx.Device().GIDs[w.Family].Addr()
	must(t, second(w.Managers[0].Dial(qa, to, "partitions", rdmacm.Params{PKeyIndex: 1}, nil, a.in(patience))))
	must(t, <-accepted)
	if attr, err := qb.Query(); err != nil || attr.Init.PKeyIndex != 1 {
		t.Errorf("the responder has P_Key index %d, want 1: %v", attr.Init.PKeyIndex, err)
	}
	a.post(qa, a.write(1, b, 8), verbs.Success)
	fresh := a.qp(verbs.RC, nil)
	wantErr(t, "no such P_Key", second(w.Managers[0].Dial(fresh, to, "partitions", rdmacm.Params{PKeyIndex: 3}, nil, a.in(patience))), verbs.ErrInvalid)
	must(t, l.Close())
}
