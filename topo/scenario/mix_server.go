package scenario

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

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

// take compares a received message with the message that has its number by the plan, or checks a
// SEND with invalidate.
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
