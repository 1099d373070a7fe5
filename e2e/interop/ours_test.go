package interop_test

import (
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// ours is an end on our NIC.
type ours struct {
	ctx verbs.Context
	gid int // index of the source address

	cq, rcq     verbs.CQ
	pd          verbs.PD
	mr          verbs.MR
	qp          verbs.QP
	extra       verbs.QP // connection of the switch; nil: none
	slot, slots int
	typ         verbs.QPType
	ah          verbs.AH
	peer        verbs.GID
	peerQPN     wire.QPN
}

var _ end = (*ours)(nil)

// qkey is the Q_Key that guest/verbs.py uses.
const qkey = 0x11111111

const allAccess = verbs.LocalWrite | verbs.RemoteWrite | verbs.RemoteRead | verbs.RemoteAtomic

func (o *ours) open(q opening) (address, error) {
	var err error
	if o.qp != nil {
		if err := o.close(); err != nil {
			return address{}, err
		}
	}
	o.slot, o.slots, o.ah = q.Slot, q.Slots, nil
	o.typ = map[string]verbs.QPType{"rc": verbs.RC, "uc": verbs.UC, "ud": verbs.UD}[q.Type]
	if o.pd, err = o.ctx.AllocPD(); err != nil {
		return address{}, err
	}
	if o.cq, err = o.ctx.CreateCQ(1024); err != nil {
		return address{}, err
	}
	if o.rcq, err = o.ctx.CreateCQ(1024); err != nil {
		return address{}, err
	}
	buf := make([]byte, q.Slot*q.Slots+verbs.GRHLen*q.Slots) // headers of datagrams are behind the slots
	for i := range buf {
		buf[i] = empty
	}
	if o.mr, err = o.pd.RegMR(buf, len(buf), allAccess); err != nil {
		return address{}, err
	}
	o.qp, err = o.pd.CreateQP(verbs.QPInit{Type: o.typ, SendCQ: o.cq, RecvCQ: o.rcq, MaxSendWR: 128, MaxRecvWR: 512, SignalAll: true})
	if err != nil {
		return address{}, err
	}
	b := o.ctx.Device().GIDs[o.gid]
	text := fmt.Sprintf("%x:%x:%x:%x:%x:%x:%x:%x", b[0:2], b[2:4], b[4:6], b[6:8], b[8:10], b[10:12], b[12:14], b[14:16])
	init := verbs.ToInit{Access: allAccess &^ verbs.LocalWrite}
	switch o.typ {
	case verbs.UC:
		init.Access = verbs.RemoteWrite
	case verbs.UD:
		init = verbs.ToInit{QKey: qkey}
	}
	return address{QPN: uint32(o.qp.QPN()), GID: text, Addr: o.mr.Addr(), RKey: o.mr.RKey()}, o.qp.ToInit(init)
}

func (o *ours) connect(to address, p params) error {
	a, err := netip.ParseAddr(to.GID)
	if err != nil {
		return err
	}
	o.peer, o.peerQPN = verbs.GIDOf(a), wire.QPN(to.QPN)
	if o.typ == verbs.UD {
		if o.ah, err = o.pd.CreateAH(verbs.AHAttr{DestGID: o.peer, SourceGID: o.gid}); err != nil {
			return err
		}
	}
	err = o.qp.ToRTR(verbs.ToRTR{
		DestQPN: wire.QPN(to.QPN), DestGID: verbs.GIDOf(a), SourceGID: o.gid, RecvPSN: wire.PSN(p.RecvPSN),
		PathMTU: verbs.MTU(p.MTU), MaxDestRdAtomic: p.RdAtomic, MinRNRTimer: p.MinRNR,
	})
	if err != nil {
		return err
	}
	return o.qp.ToRTS(verbs.ToRTS{
		SendPSN: wire.PSN(p.SendPSN), Timeout: p.Timeout, RetryCount: p.Retry, RNRRetry: p.RNRRetry, MaxRdAtomic: p.RdAtomic,
	})
}

func (o *ours) fill(sizes []int, seed int) error {
	var err error
	for m, n := range sizes {
		b := make([]byte, n)
		pattern(b, m, seed)
		err = errors.Join(err, o.mr.WriteAt(b, m*o.slot))
	}
	return err
}

func (o *ours) recv(first, count, size int) error {
	for m := first; m < first+count; m++ {
		sgl := []verbs.SGE{o.mr.SGE(m*o.slot, size)}
		if o.typ == verbs.UD {
			sgl = []verbs.SGE{o.mr.SGE(o.header(m), verbs.GRHLen), sgl[0]}
		}
		if err := o.qp.PostRecv(verbs.RecvWR{ID: uint64(m), SGL: sgl}); err != nil {
			return err
		}
	}
	return nil
}

// header returns the place of the header of datagram m.
func (o *ours) header(m int) int { return o.slot*o.slots + verbs.GRHLen*m }

func (o *ours) work(w *work, m int) verbs.SendWR {
	wr := verbs.SendWR{
		ID: uint64(m), RKey: w.RKey, Imm: w.Imm + uint32(m), CompareAdd: w.Add,
		RemoteAddr: w.Addr + uint64(w.Stride*m), AH: o.ah, RemoteQPN: o.peerQPN, RemoteQKey: qkey,
	}
	pieces := max(w.Pieces, 1)
	for k := range pieces {
		from, to := w.Sizes[m]*k/pieces, w.Sizes[m]*(k+1)/pieces
		wr.SGL = append(wr.SGL, o.mr.SGE(m*o.slot+from, to-from))
	}
	switch w.Op {
	case "send":
		wr.Op = verbs.OpSend
	case "send_imm":
		wr.Op = verbs.OpSendImm
	case "write":
		wr.Op = verbs.OpWrite
	case "write_imm":
		wr.Op = verbs.OpWriteImm
	case "read":
		wr.Op = verbs.OpRead
	case "faa":
		wr.Op, wr.RemoteAddr = verbs.OpFetchAdd, w.Addr
	case "cas":
		wr.Op, wr.RemoteAddr = verbs.OpCmpSwap, w.Addr
		wr.CompareAdd, wr.Swap = w.First+uint64(m), w.First+uint64(m)+1
	}
	return wr
}

func (o *ours) run(w work) ([]completion, error) {
	var out []completion
	posted, total := 0, len(w.Sizes)
	for len(out) < total {
		for ; posted < total && posted-len(out) < w.Depth; posted++ {
			if err := o.qp.PostSend(o.work(&w, posted)); err != nil {
				return out, err
			}
		}
		got, err := o.poll(o.cq, time.Duration(w.Limit*float64(time.Second)))
		if err != nil {
			return out, err
		}
		if len(got) == 0 {
			break
		}
		out = append(out, got...)
		for _, c := range got {
			if c.Status != 0 {
				total = posted
			}
		}
	}
	return out, nil
}

// poll waits for completions; it returns none when the time is up.
func (o *ours) poll(cq verbs.CQ, limit time.Duration) ([]completion, error) {
	err := cq.Wait(o.ctx.Runtime().Now().Add(limit))
	if errors.Is(err, verbs.ErrTimeout) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var wcs [64]verbs.WC
	n, err := cq.Poll(wcs[:])
	var out []completion
	for _, w := range wcs[:n] {
		c := completion{ID: w.ID, Status: int(w.Status), Len: w.ByteLen}
		if w.Flags&verbs.WithImm != 0 {
			c.Imm = w.Imm
		}
		if w.Flags&verbs.WithGRH != 0 {
			var b [verbs.GRHLen]byte
			err = errors.Join(err, o.mr.ReadAt(b[:], o.header(int(w.ID))))
			if h, herr := verbs.ParseGRH(b[:]); herr != nil || h.Source != o.peer {
				err = errors.Join(err, herr, fmt.Errorf("datagram %d says that it is from %v, not %v", w.ID, h.Source, o.peer))
			}
		}
		out = append(out, c)
	}
	return out, err
}

func (o *ours) wait(count int, limit time.Duration) ([]completion, error) {
	var out []completion
	for len(out) < count {
		got, err := o.poll(o.rcq, limit)
		if err != nil || len(got) == 0 {
			return out, err
		}
		out = append(out, got...)
	}
	return out, nil
}

func (o *ours) check(sizes []int, seed int) ([]int, error) {
	var bad []int
	got, want := make([]byte, o.slot), make([]byte, o.slot)
	for m, n := range sizes {
		for i := range want {
			want[i] = empty
		}
		pattern(want[:n], m, seed)
		if err := o.mr.ReadAt(got, m*o.slot); err != nil {
			return nil, err
		}
		if string(got) != string(want) {
			bad = append(bad, m)
		}
	}
	return bad, nil
}

func (o *ours) word(store *uint64, count int) ([]uint64, error) {
	if store != nil {
		if err := o.mr.Store64(0, *store); err != nil {
			return nil, err
		}
	}
	var out []uint64
	for m := range count {
		v, err := o.mr.Load64(m * o.slot)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (o *ours) close() error {
	if o.qp == nil {
		return nil
	}
	err := o.qp.Destroy()
	if o.extra != nil {
		err = errors.Join(err, o.extra.Destroy())
		o.extra = nil
	}
	if o.ah != nil {
		err = errors.Join(err, o.ah.Destroy())
	}
	err = errors.Join(err, o.mr.Dereg(), o.pd.Dealloc(), o.cq.Destroy(), o.rcq.Destroy())
	o.qp = nil
	return err
}
