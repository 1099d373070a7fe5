package perf

import (
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// laneServer is the server's side of a connection with lanes. It is a mode: it judges and counts as one.
type laneServer struct {
	mode
	lanes
	ctx   verbs.Context
	peer  netip.Addr
	pd    verbs.PD
	srq   verbs.SRQ
	qps   []verbs.QP
	byQPN map[wire.QPN]verbs.QP
	own   []rdmacm.Endpoint
	ah    verbs.AH
	slot  int // bytes of a receive
}

const (
	// laneWait is how long a server sleeps between two looks at what its client has written, laneLooks how often it looks.
	laneWait  = 100 * time.Microsecond
	laneLooks = 100_000
)

// buildLanes makes the lanes of a connection and writes the table for its client.
func (s *Server) buildLanes(c *conn, pd verbs.PD, peer netip.Addr) error {
	l, err := parseLanes(c.hello.Lanes)
	if err != nil {
		return err
	}
	ls := &laneServer{
		mode: mode{conn: c, pat: Pattern{c.hello.Seed}}, lanes: l, ctx: s.ctx, peer: peer, pd: pd,
		byQPN: make(map[wire.QPN]verbs.QP), slot: c.hello.slot(),
	}
	c.lanes = ls
	total := l.n * c.hello.Recvs
	if l.shared {
		if ls.srq, err = pd.CreateSRQ(verbs.SRQInit{MaxWR: total, MaxSGE: 1}); err != nil {
			return err
		}
		c.undo = append(c.undo, ls.srq.Destroy)
	}
	for i := range l.n {
		init := verbs.QPInit{Type: laneTypes[l.kind], SendCQ: c.cq, RecvCQ: c.cq, SRQ: ls.srq, MaxSendWR: c.hello.Recvs, MaxRecvWR: c.hello.Recvs, MaxSGE: 1}
		qp, err := pd.CreateQP(init)
		if err != nil {
			return err
		}
		c.undo = append(c.undo, qp.Destroy)
		e, err := rdmacm.LocalEndpoint(s.ctx, qp, peer, rdmacm.Params{})
		if err != nil {
			return err
		}
		ls.qps, ls.own = append(ls.qps, qp), append(ls.own, e)
		ls.byQPN[qp.QPN()] = qp
		if err := c.report.Store64(laneTable(i), laneEnd{e.QPN, e.PSN, e.MTU}.pack()); err != nil {
			return err
		}
	}
	return nil
}

// serveLanes is the thread of a connection with lanes, as serveMode is of one without.
func serveLanes(rt verbs.Runtime, c *conn) {
	s := c.lanes
	if err := s.begin(rt); err == nil {
		_ = s.serve(rt) // the client sees why by itself: completions and report end
	}
	_ = c.qp.ToError()
	for _, qp := range s.qps {
		_ = qp.ToError()
	}
	if s.ah != nil {
		_ = s.ah.Destroy()
	}
	_ = c.destroy()
}

// begin waits for the client's table, brings the lanes up and posts the receives.
func (s *laneServer) begin(rt verbs.Runtime) error {
	// The flush of this receive is the end of the connection.
	if err := s.qp.PostRecv(verbs.RecvWR{}); err != nil {
		return err
	}
	for looks := 0; ; looks++ {
		v, err := s.report.Load64(laneGo(s.n))
		if err != nil {
			return err
		}
		if v == 1 {
			break
		}
		if n, err := s.cq.Poll(s.wcs[:1]); n > 0 || err != nil || looks == laneLooks {
			return errFlushed
		}
		rt.Sleep(laneWait)
	}
	gid := verbs.GIDOf(s.peer)
	for i, qp := range s.qps {
		w, err := s.report.Load64(laneAnswer(s.n, i))
		if err != nil {
			return err
		}
		if err := s.start(s.ctx, qp, s.own[i], unpackLane(w), gid, rdmacm.Params{}); err != nil {
			return err
		}
		for k := range s.hello.Recvs {
			if err := s.post(qp, i*s.hello.Recvs+k); err != nil {
				return err
			}
		}
	}
	if s.hello.Mode == modeEcho && s.kind == ConnUD {
		if err := s.address(gid); err != nil {
			return err
		}
	}
	return s.report.Store64(reportReady, 1)
}

// address makes the address handle for echoes.
func (s *laneServer) address(gid verbs.GID) (err error) {
	for i, own := range s.ctx.Device().GIDs {
		if own == s.own[0].GID {
			s.ah, err = s.pd.CreateAH(verbs.AHAttr{DestGID: gid, SourceGID: i})
			return err
		}
	}
	return fmt.Errorf("this NIC has no address %v any more", s.own[0].GID)
}

// post posts the receive of a slot.
func (s *laneServer) post(qp verbs.QP, slot int) error {
	wr := verbs.RecvWR{ID: uint64(slot), SGL: []verbs.SGE{s.data.SGE(slot*s.slot, s.slot)}}
	if s.srq != nil {
		return s.srq.PostRecv(wr)
	}
	return qp.PostRecv(wr)
}

// serve takes messages until the connection ends or the client is silent.
func (s *laneServer) serve(rt verbs.Runtime) error {
	for {
		n, err := s.cq.Poll(s.wcs[:])
		if err != nil {
			return err
		}
		if n == 0 {
			if err := s.cq.Wait(rt.Now().Add(idleLimit)); err != nil {
				return err
			}
		}
		for i := range s.wcs[:n] {
			if err := s.one(&s.wcs[i]); err != nil {
				return err
			}
		}
		if err := s.report.Store64(reportCount, s.count); err != nil {
			return err
		}
	}
}

// one handles one completion.
func (s *laneServer) one(wc *verbs.WC) error {
	qp := s.byQPN[wc.QPN]
	if wc.Status != verbs.Success || qp == nil {
		return errFlushed
	}
	slot := int(wc.ID &^ sendID)
	if wc.ID&sendID != 0 {
		return s.post(qp, slot) // the echo has left
	}
	at := slot*s.slot + s.room()
	n := int(wc.ByteLen) - s.room()
	s.count++
	s.bytes += uint64(n)
	if err := s.judgeAs(uint64(wc.Imm), s.buf[at:at+n]); err != nil {
		return err
	}
	if s.hello.Mode != modeEcho {
		return s.post(qp, slot)
	}
	wr := verbs.SendWR{ID: wc.ID | sendID, Op: verbs.OpSendImm, Imm: wc.Imm, Flags: verbs.Signalled, SGL: []verbs.SGE{s.data.SGE(at, n)}}
	if s.ah != nil {
		wr.AH, wr.RemoteQPN, wr.RemoteQKey = s.ah, wc.SrcQPN, laneQKey
	}
	return qp.PostSend(wr)
}
