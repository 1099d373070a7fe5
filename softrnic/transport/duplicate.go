package transport

import (
	"github.com/rdmalab/rdmalab/softrnic/mem"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// result is what the responder stores about an executed atomic, ATOMIC_WRITE or FLUSH, to answer
// duplicates. An ATOMIC_WRITE and a FLUSH have no value.
type result struct {
	psn   wire.PSN
	op    wire.Opcode
	va    uint64
	value uint64
}

// results is a ring of the last results. Its size is MaxDestRdAtomic, the number of READs, atomics
// and FLUSHes that the peer may have in flight.
type results struct {
	all    []result
	newest int // index of the result that add has stored last
}

// add stores a result. If there are already `most` results, it replaces the oldest one (IBTA
// 9.4.5/replay).
func (s *results) add(r result, most int) {
	if len(s.all) < most {
		s.newest = len(s.all)
		s.all = append(s.all, r)
		return
	}
	if s.newest++; s.newest == most {
		s.newest = 0
	}
	s.all[s.newest] = r
}

// resize makes room for `most` results. The newest that fit stay.
func (s *results) resize(most int) {
	kept := make([]result, 0, most)
	for i := min(len(s.all), most); i > 0; i-- {
		kept = append(kept, *s.recent(i - 1))
	}
	s.all, s.newest = kept, max(len(kept)-1, 0)
}

// recent returns the result that was stored n results before the newest one.
func (s *results) recent(n int) *result {
	at := s.newest - n
	if at < 0 {
		at += len(s.all)
	}
	return &s.all[at]
}

func (s *results) last() *result { return &s.all[s.newest] }

// find returns the newest result of a request with this PSN; nil if there is none.
func (s *results) find(psn wire.PSN) *result {
	for i := range s.all {
		if r := s.recent(i); r.psn == psn {
			return r
		}
	}
	return nil
}

// oweResult adds a response with the stored result r to owed, the responses to be sent.
func (a *answers) oweResult(r *result) *response {
	if r.op == wire.RCAtomicWrite || r.op == wire.RCFlush {
		return a.owe(owedWritten, r.psn, 0)
	}
	e := a.owe(owedAtomic, r.psn, 0)
	if e != nil {
		e.value = r.value
	}
	return e
}

// duplicate answers a request whose PSN is before the expected one. Only a READ is executed again,
// because it changes no memory (IBTA 9.7.4.1/duplicate). Of XRC, only a READ needs the shared receive
// queue that it names, for its protection domain: the others are answered also if the queue has gone.
func (r *responder) duplicate(p *wire.Packet, info *wire.OpInfo) {
	r.env.Counters.DuplicateRequest++
	r.noteRepeated(p)
	switch {
	case info.Flags&wire.OpRead != 0:
		pd := r.cfg.PD
		if r.cfg.XRC != nil {
			s, v := r.named(p)
			if v != pass {
				return // its shared receive queue has gone since it was executed
			}
			pd = s.pd
		}
		r.duplicateRead(p, pd)
	case info.Flags&(wire.OpAtomic|wire.OpFlush) != 0:
		r.replay(p)
	case info.Flags&(wire.OpSend|wire.OpWrite) != 0:
		// The ACK has the PSN of the newest executed request, and so acknowledges all of them (C9-105).
		if p.BTH.AckReq {
			r.answers.owe(owedAck, r.ePSN.Add(-1), wire.AckNoCredits)
		}
	}
}

// replay answers a duplicate from the stored results. It drops a duplicate whose result was
// replaced by later ones: the requester has no more such requests in flight than there are results,
// so it has already received this response.
func (r *responder) replay(p *wire.Packet) {
	va := p.RETH.VA
	if p.BTH.Opcode.Has(wire.HasAtomicETH) {
		va = p.AtomicETH.VA
	}
	if e := r.exec.replay.find(p.BTH.PSN); e != nil && e.op == p.BTH.Opcode && e.va == va && r.answers.oweResult(e) != nil {
		r.env.Counters.ReplayedAtomics++
	}
}

// duplicateRead executes a READ again, from its beginning or from the packet that the requester
// asks for. All its PSNs must be before the expected one, and its R_Key must still be valid. If the
// responder is still sending the responses to this READ, it continues from the requested packet.
func (r *responder) duplicateRead(p *wire.Packet, pd mem.PD) {
	n := packetsOf(p.RETH.Length, r.mtu)
	if p.RETH.Length > MaxMessage || wire.Diff(p.BTH.PSN.Add(int(n-1)), r.ePSN) >= 0 || len(p.Payload) > 0 {
		return
	}
	for i := range r.answers.owed {
		e := &r.answers.owed[i]
		if e.kind != owedRead || !e.covers(p.BTH.PSN) {
			continue
		}
		off := uint32(wire.Diff(p.BTH.PSN, e.psn))
		if r.held != nil && off+n <= e.sent {
			continue // a selective repeat of responses that were sent: beside those that follow
		}
		if same := p.RETH.VA == e.va+uint64(off*r.mtu) && p.RETH.RKey == e.rkey; same && off < e.sent {
			e.sent = off
			if i == 0 && r.answers.torn.kind == tornRead {
				r.answers.torn.kind = notTorn
			}
			r.env.Counters.ReplayedReads++
		}
		return
	}
	if r.init.Access&verbs.RemoteRead == 0 {
		return
	}
	if r.answers.oweRead(p, pd, n) != nil {
		r.env.Counters.ReplayedReads++
	}
}
