package simrack

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// A server has two protection domains. The client's memory is in one, the switch's connections are
// in the other: the R_Key works on the client's connection and is refused on the shared one. That
// ends the client's connection once. From then on the switch leaves the client's requests on the
// client's connection.
func TestKeyOfAnotherProtectionDomain(t *testing.T) {
	r := newRack(t, boxed, Options{Datagrams: true})
	ms, cn := r.Host("ms0"), r.Host("cn0")
	ms.Go("server", true, func(ctx verbs.Context) {
		rt := ctx.Runtime()
		forSwitch, _ := ctx.AllocPD()
		forClients, _ := ctx.AllocPD()
		mr, err := forClients.RegMR(nil, 64, verbs.LocalWrite|verbs.RemoteWrite|verbs.RemoteRead|verbs.RemoteAtomic)
		if err != nil {
			t.Error(err)
			return
		}
		l, err := ms.ConnManager(ctx).Listen(restartService)
		if err != nil {
			t.Error(err)
			return
		}
		private := binary.BigEndian.AppendUint64(nil, mr.Addr())
		private = binary.BigEndian.AppendUint32(private, mr.RKey())
		for {
			req, err := l.Accept(clock.Never)
			if err != nil {
				return
			}
			pd := forClients
			if req.Peer() == r.Spec.Switch.IPv4 {
				pd = forSwitch
			}
			cq, _ := ctx.CreateCQ(4)
			qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
			if err != nil {
				t.Error(err)
				return
			}
			rt.Go("accept", func() { _ = req.Accept(qp, rdmacm.Params{}, private, rt.Now().Add(time.Second)) })
		}
	})
	var ends []verbs.Status
	cn.Go("client", false, func(ctx verbs.Context) {
		ctx.Runtime().Sleep(20 * time.Millisecond)
		for range 3 {
			ends = append(ends, addsUntil(t, cn, ctx, ms, 20))
			ctx.Runtime().Sleep(20 * time.Millisecond)
		}
	})
	if err := r.Run(); err != nil {
		t.Fatal(err)
	}
	if len(ends) != 3 || ends[0] != verbs.RemAccessErr || ends[1] != verbs.Success || ends[2] != verbs.Success {
		t.Errorf("connections ended with %v", ends)
	}
}

// addsUntil posts up to n additions until one fails, and returns the status of the last one.
func addsUntil(t *testing.T, h *Host, ctx verbs.Context, server *Host, n int) verbs.Status {
	pd, _ := ctx.AllocPD()
	cq, _ := ctx.CreateCQ(4)
	local, _ := pd.RegMR(make([]byte, 8), 0, verbs.LocalWrite)
	qp, err := pd.CreateQP(verbs.QPInit{SendCQ: cq, RecvCQ: cq, MaxSendWR: 1, MaxRecvWR: 1})
	if err != nil {
		t.Error(err)
		return verbs.Success
	}
	private, err := h.ConnManager(ctx).Dial(qp, server.Addr(), restartService, rdmacm.Params{}, nil, clock.Never)
	if err != nil {
		t.Error(err)
		return verbs.Success
	}
	addr, key := binary.BigEndian.Uint64(private), binary.BigEndian.Uint32(private[8:])
	var wc [1]verbs.WC
	for range n {
		wr := verbs.SendWR{Op: verbs.OpFetchAdd, Flags: verbs.Signalled, RKey: key, RemoteAddr: addr, CompareAdd: 1, SGL: []verbs.SGE{local.SGE(0, 8)}}
		if err := errors.Join(qp.PostSend(wr), cq.Wait(clock.Never)); err != nil {
			t.Error(err)
		}
		if _, err := cq.Poll(wc[:]); err != nil {
			t.Error(err)
		}
		if wc[0].Status != verbs.Success {
			break
		}
	}
	if err := errors.Join(qp.Destroy(), local.Dereg(), cq.Destroy(), pd.Dealloc()); err != nil {
		t.Error(err)
	}
	return wc[0].Status
}
