package uverbs_test

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/serve"
	"github.com/rdmalab/rdmalab/softrnic/uverbs"
)

// An attribute of a new queue that the manual calls ignored is ignored, whatever it is; one that is
// smaller than the NIC's smallest is raised, and the answer has what the program gets: never less
// than it has asked for (ibv_create_qp(3), ibv_create_srq(3), rxe_qp_chk_cap, rxe_srq_chk_init).
func TestAttributesThatAreRaisedOrIgnored(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	e := h.attach(t, 0).queuePair(uverbs.TypeRC)
	d := do[uverbs.Device](e.client, uverbs.QueryDevice)
	for name, a := range map[string]uverbs.SRQArgs{
		"no SGE":          {MaxWR: 1024},
		"the smallest":    {MaxWR: 1},
		"a limit is none": {MaxWR: 4, MaxSGE: 2, Limit: 1 << 31},
		"the largest":     {MaxWR: d.MaxSRQWR, MaxSGE: d.MaxSRQSGE},
	} {
		a.PD = e.pd
		got := do[uverbs.SRQ](e.client, uverbs.CreateSRQ, a)
		attr := do[uverbs.SRQAttr](e.client, uverbs.QuerySRQ, uverbs.Handle{H: got.H}, uint32(0))
		if got.MaxWR < a.MaxWR || got.MaxSGE != max(a.MaxSGE, 1) || attr.MaxWR < a.MaxWR || attr.MaxSGE != got.MaxSGE || attr.Limit != 0 {
			t.Errorf("SRQ, %s: asked for %+v, got %+v, query %+v", name, a, got, attr)
		}
	}
	srq := do[uverbs.SRQ](e.client, uverbs.CreateSRQ, uverbs.SRQArgs{PD: e.pd, MaxWR: 16})
	for _, typ := range []uint8{uverbs.TypeRC, uverbs.TypeUD} {
		for name, c := range map[string]struct {
			wrs, sges uint32
			shared    uint8
			want      unix.Errno
		}{
			"an SRQ, too many receives": {d.MaxQPWR * 4, 1, 1, 0},
			"an SRQ, too many pieces":   {1, d.MaxSGE * 4, 1, 0},
			"an SRQ, all that there is": {^uint32(0), ^uint32(0), 1, 0},
			"an SRQ, nothing":           {0, 0, 1, 0},
			"no SRQ, too many receives": {d.MaxQPWR + 1, 1, 0, unix.EINVAL},
			"no SRQ, too many pieces":   {1, d.MaxSGE + 1, 0, unix.EINVAL},
			"no SRQ, nothing":           {0, 0, 0, 0},
		} {
			before := h.used()["queueMemory"]
			data, errno := e.raw(uverbs.CreateQP, uverbs.NoChannel, uverbs.Encode(uverbs.QPArgs{
				PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, SRQ: srq.H, MaxSend: 4, MaxRecv: c.wrs, MaxSGE: 1, MaxRecvSGE: c.sges, Type: typ, HasSRQ: c.shared,
			}))
			if errno != c.want {
				t.Errorf("type %d, %s: %v, want %v", typ, name, errno, c.want)
			}
			if errno != 0 {
				continue
			}
			qp := binary.NativeEndian.Uint32(data)
			q := do[uverbs.QPAttr](e.client, uverbs.QueryQP, uverbs.QueryQPArgs{H: qp})
			if c.shared != 0 && (q.MaxRecv != 0 || q.MaxRecvSGE != 0 || h.used()["queueMemory"]-before > 1<<16) {
				t.Errorf("type %d, %s: query says %d receives of %d pieces; %d bytes", typ, name, q.MaxRecv, q.MaxRecvSGE, h.used()["queueMemory"]-before)
			}
			e.end(uverbs.DestroyQP, qp, 0)
		}
	}
	for _, c := range []struct{ sges, inline, wantSGEs, wantInline uint32 }{
		{1, 0, 1, 16}, {1, 16, 1, 16}, {1, 64, 4, 64}, {4, 16, 4, 64}, {2, 100, 6, 100}, {1, 1024, 32, 1024}, {32, 0, 32, 512},
	} {
		q := do[uverbs.QP](e.client, uverbs.CreateQP, uverbs.QPArgs{
			PD: e.pd, SendCQ: e.cq, RecvCQ: e.cq, MaxSend: 4, MaxRecv: 4, MaxSGE: c.sges, MaxRecvSGE: 1, MaxInline: c.inline, Type: uverbs.TypeRC,
		})
		if q.MaxSGE != c.wantSGEs || q.MaxInline != c.wantInline {
			t.Errorf("%d pieces, %d bytes inline: got %d and %d, want %d and %d", c.sges, c.inline, q.MaxSGE, q.MaxInline, c.wantSGEs, c.wantInline)
		}
	}
}

// A queue pair takes receives without data from an SRQ that was made for no SGEs, as PyTorch makes
// one: a SEND without data, and a WRITE with immediate data.
func TestSharedReceivesWithoutData(t *testing.T) {
	h := newHouse(t, serve.Limits{})
	a := h.attach(t, 0).queuePair(uverbs.TypeRC)
	b := h.attach(t, 1).queuePair(uverbs.TypeRC)
	srq := do[struct {
		uverbs.SRQ
		At uverbs.Area
	}](b.client, uverbs.CreateSRQ, uverbs.SRQArgs{PD: b.pd, MaxWR: 8})
	b.qp = do[made](b.client, uverbs.CreateQP, uverbs.QPArgs{
		PD: b.pd, SendCQ: b.cq, RecvCQ: b.cq, SRQ: srq.H, HasSRQ: 1, MaxSend: 4, MaxRecv: 1 << 30, MaxSGE: 1, Type: uverbs.TypeRC,
	}).QP
	a.connect(b, 1)
	b.connect(a, 0)
	b.recv = b.view(srq.At)
	for range 20 {
		slot := b.recv.Slot(b.recv.Producer())
		clear(slot)
		binary.NativeEndian.PutUint64(slot, 77)
		b.recv.SetProducer(b.recv.Producer() + 1)
		a.post(opSend, 0, 0, 0, 0)
		a.succeeds()
		if c := b.succeeds(); c.ID != 77 || c.Len != 0 {
			t.Fatalf("%+v", c)
		}
	}
}
