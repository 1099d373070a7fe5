package perf

import (
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// laneServer is the server's side of a connection with lanes, the additional queue pairs of a SEND
// test. Like sink, it checks and counts messages.
type laneServer struct {
	sink  sink
	srq   verbs.SRQ
	qps   []verbs.QP
	byQPN map[wire.QPN]verbs.QP
	own   []rdmacm.Endpoint
	ah    verbs.AH // of the client, for echoes over UD; else nil
	slot  int      // length of a receive in bytes
}

const (
	// laneWait is how long a server sleeps between two checks of the word that its client writes;
	// laneLooks is the largest number of checks.
	laneWait  = 100 * time.Microsecond
	laneLooks = 100_000
)

// buildLanes makes the server's lanes of a connection, and writes their table for the client.
func (w *work) buildLanes() (err error) {
	ls := &laneServer{sink: sink{w: w, pat: Pattern{w.seed}}, byQPN: make(map[wire.QPN]verbs.QP), slot: w.slot()}
	w.ls = ls
	if w.lanes.shared {
		if ls.srq, err = w.PD.CreateSRQ(verbs.SRQInit{MaxWR: w.lanes.n * w.recvs, MaxSGE: 1}); err != nil {
			return err
		}
		w.OnDestroy(ls.srq.Destroy)
	}
	for i := range w.lanes.n {
		init := verbs.QPInit{
			Type: laneTypes[w.lanes.kind], SendCQ: w.CQ, RecvCQ: w.CQ, SRQ: ls.srq, MaxSendWR: w.recvs, MaxRecvWR: w.recvs, MaxSGE: 1,
		}
		qp, err := w.PD.CreateQP(init)
		if err != nil {
			return err
		}
		w.OnDestroy(qp.Destroy)
		e, err := rdmacm.LocalEndpoint(w.Context, qp, w.Peer, w.Params())
		if err != nil {
			return err
		}
		ls.qps, ls.own = append(ls.qps, qp), append(ls.own, e)
		ls.byQPN[qp.QPN()] = qp
		if err := w.report.Store64(laneTable(i), laneEnd{e.QPN, e.PSN, e.MTU}.pack()); err != nil {
			return err
		}
	}
	return nil
}

// run is the thread of a connection with lanes.
func (s *laneServer) run() {
	if err := s.begin(); err == nil {
		_ = s.serve() // the client notices the failure itself: its sends fail, or the report does not change any more
	}
	_ = s.sink.w.QP.ToError()
	for _, qp := range s.qps {
		_ = qp.ToError()
	}
	if s.ah != nil {
		_ = s.ah.Destroy()
	}
	_ = s.sink.w.Destroy()
}

// begin waits for the client's table, moves the lanes to RTS and posts the receives.
func (s *laneServer) begin() error {
	// This receive is never used: when it is flushed, the connection has ended.
	if err := s.sink.w.QP.PostRecv(verbs.RecvWR{}); err != nil {
		return err
	}
	for looks := 0; ; looks++ {
		v, err := s.sink.w.report.Load64(laneGo(s.sink.w.lanes.n))
		if err != nil {
			return err
		}
		if v == 1 {
			break
		}
		if n, err := s.sink.w.CQ.Poll(s.sink.wcs[:1]); n > 0 || err != nil || looks == laneLooks {
			return errFlushed
		}
		s.sink.w.rt.Sleep(laneWait)
	}
	gid := verbs.GIDOf(s.sink.w.Peer)
	for i, qp := range s.qps {
		w, err := s.sink.w.report.Load64(laneAnswer(s.sink.w.lanes.n, i))
		if err != nil {
			return err
		}
		if err := s.sink.w.lanes.start(s.sink.w.Context, qp, s.own[i], unpackLane(w), gid, s.sink.w.Params()); err != nil {
			return err
		}
		for k := range s.sink.w.recvs {
			if err := s.post(qp, i*s.sink.w.recvs+k); err != nil {
				return err
			}
		}
	}
	if s.sink.w.mode == modeEcho && s.sink.w.lanes.kind == ConnUD {
		var err error
		if s.ah, err = addressOf(s.sink.w.Context, s.sink.w.PD, gid, s.own[0].GID); err != nil {
			return err
		}
	}
	return s.sink.w.report.Store64(reportReady, 1)
}

// addressOf makes an address handle for datagrams to the NIC with the address `to`. own is this
// NIC's address, the source.
func addressOf(ctx verbs.Context, pd verbs.PD, to, own verbs.GID) (verbs.AH, error) {
	i := slices.Index(ctx.Device().GIDs, own)
	if i < 0 {
		return nil, fmt.Errorf("this NIC has no address %v any more", own)
	}
	return pd.CreateAH(verbs.AHAttr{DestGID: to, SourceGID: i})
}

// post posts the receive that uses a slot of the receive buffers.
func (s *laneServer) post(qp verbs.QP, slot int) error {
	wr := verbs.RecvWR{ID: uint64(slot), SGL: []verbs.SGE{s.sink.w.data.SGE(slot*s.slot, s.slot)}}
	if s.srq != nil {
		return s.srq.PostRecv(wr)
	}
	return qp.PostRecv(wr)
}

// serve receives messages until the connection ends or the client has been silent for too long.
func (s *laneServer) serve() error {
	return s.sink.loop(func(wcs []verbs.WC) error {
		for i := range wcs {
			if err := s.one(&wcs[i]); err != nil {
				return err
			}
		}
		return s.sink.w.report.Store64(reportCount, s.sink.count)
	})
}

// one handles one completion: of a receive, or of the send that echoes a message.
func (s *laneServer) one(wc *verbs.WC) error {
	qp := s.byQPN[wc.QPN]
	if wc.Status != verbs.Success || qp == nil {
		return errFlushed
	}
	slot := int(wc.ID &^ sendID)
	if wc.ID&sendID != 0 {
		return s.post(qp, slot) // the echo was sent, so the slot is free
	}
	at := slot*s.slot + s.sink.w.lanes.room()
	n := int(wc.ByteLen) - s.sink.w.lanes.room()
	s.sink.count++
	s.sink.bytes += uint64(n)
	if err := s.sink.judgeAs(uint64(wc.Imm), s.sink.w.buf[at:at+n]); err != nil {
		return err
	}
	if s.sink.w.mode != modeEcho {
		return s.post(qp, slot)
	}
	wr := verbs.SendWR{ID: wc.ID | sendID, Op: verbs.OpSendImm, Imm: wc.Imm, Flags: verbs.Signalled, SGL: []verbs.SGE{s.sink.w.data.SGE(at, n)}}
	if s.ah != nil {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ah, wc.SrcQPN, laneQKey
	}
	return qp.PostSend(wr)
}
