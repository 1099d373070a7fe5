package ladder

import (
	"fmt"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// message returns the name and the fields of a connection manager's datagram, and of a packet without a flow
// what it is, with its PSN as it is; "" for others.
func message(p *flows.Packet) string {
	switch m := p.Message.(type) {
	case *mad.REQ:
		return fmt.Sprintf("CM REQ id=%#x service=%v qp=%#x psn=%#x mtu=%d retries=%d", uint32(m.LocalID), m.Service, uint32(m.QPN),
			uint32(m.PSN), 128<<(m.MTU&7), m.Retry)
	case *mad.REP:
		return fmt.Sprintf("CM REP id=%#x for=%#x qp=%#x psn=%#x", uint32(m.LocalID), uint32(m.RemoteID), uint32(m.Pair()), uint32(m.PSN))
	case *mad.RTU:
		return fmt.Sprintf("CM RTU id=%#x for=%#x", uint32(m.LocalID), uint32(m.RemoteID))
	case *mad.REJ:
		return fmt.Sprintf("CM REJ id=%#x for=%#x: %v", uint32(m.LocalID), uint32(m.RemoteID), m.Reason)
	case *mad.MRA:
		return fmt.Sprintf("CM MRA id=%#x for=%#x within=%v", uint32(m.LocalID), uint32(m.RemoteID), mad.Time(m.Timeout))
	case *mad.DREQ:
		return fmt.Sprintf("CM DREQ id=%#x for=%#x qp=%#x", uint32(m.LocalID), uint32(m.RemoteID), uint32(m.QPN))
	case *mad.DREP:
		return fmt.Sprintf("CM DREP id=%#x for=%#x", uint32(m.LocalID), uint32(m.RemoteID))
	case *mad.SIDRReq:
		return fmt.Sprintf("CM SIDR_REQ id=%#x service=%v", uint32(m.RequestID), m.Service)
	case *mad.SIDRRep:
		return fmt.Sprintf("CM SIDR_REP id=%#x: %v qp=%#x qkey=%#x", uint32(m.RequestID), m.Status, uint32(m.QPN), m.QKey)
	}
	if h := &p.Header; p.Flow == nil {
		text := fmt.Sprintf("%v qp=%#x psn=%#x", h.BTH.Opcode, uint32(h.BTH.DestQP), uint32(h.BTH.PSN))
		if h.BTH.Opcode.Has(wire.HasAETH) {
			text += fmt.Sprintf(" %v", h.AETH.Syndrome)
		}
		return text
	}
	return ""
}

// Title returns what the packet is: relative PSN, opcode, queue pair, and what a NAK asks for.
func (r *Row) Title() string {
	if r.Message != "" {
		return r.Message
	}
	text := fmt.Sprintf("%+d %v qp=%#x", r.PSN, r.Opcode, uint32(r.QPN))
	if r.Packets > 1 {
		text = fmt.Sprintf("%+d…%+d %v qp=%#x, %d packets", r.PSN, int(r.PSN)+r.Packets-1, r.Opcode, uint32(r.QPN), r.Packets)
	}
	if r.Opcode.Has(wire.HasXRCETH) {
		text += fmt.Sprintf(" srq=%#x", r.SRQ)
	}
	if r.HasSyndrome && r.Syndrome != wire.AckNoCredits {
		text += fmt.Sprintf(" %v", r.Syndrome)
	}
	if r.HasSyndrome && (r.Syndrome == wire.NakPSNSequence || r.Syndrome.IsRNR()) {
		text += fmt.Sprintf(", asks for %+d", r.PSN)
	}
	return text
}

// Nak reports whether the packet refuses a request.
func (r *Row) Nak() bool { return r.HasSyndrome && !r.Syndrome.IsAck() }

// Note returns what has happened to the packet: why it is sent again, what the switch has rewritten.
func (r *Row) Note() string {
	var notes []string
	if r.Damaged {
		notes = append(notes, "wrong ICRC")
	}
	if r.Resend.Why != Once {
		notes = append(notes, r.Resend.text())
	}
	if len(r.Changes) > 0 {
		notes = append(notes, fmt.Sprintf("was #%d: %s", r.Passed, strings.Join(r.Changes, ", ")))
	}
	return strings.Join(notes, "; ")
}

// text says why a packet is sent again.
func (s *Resend) text() string {
	text := fmt.Sprintf("again: #%d", s.First)
	if s.First == 0 {
		text = "again: the first copy is not in the capture"
	}
	switch s.Why {
	case Asked:
		text += fmt.Sprintf(", asked for by #%d", s.Cause)
	case Behind:
		text += fmt.Sprintf(", behind #%d", s.Cause)
	case Overtaken:
		text += fmt.Sprintf(", #%d overtook its answer", s.Cause)
	case Unanswered:
		text += fmt.Sprintf(", no answer for %v", round(s.Wait))
	case Repeated:
		text += fmt.Sprintf(", answers #%d", s.Cause)
	case Once:
	}
	switch {
	case s.GoneAnswer:
		text += fmt.Sprintf(", answer #%d was lost", s.Gone)
	case s.Gone > 0:
		text += fmt.Sprintf(", #%d was lost", s.Gone)
	}
	return text
}

// round returns nanoseconds as a duration of three digits.
func round(ns int64) time.Duration {
	d := time.Duration(ns)
	unit := time.Duration(1)
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit)
}

// LostTo returns what has dropped a lost packet, like "f1 (loss)" or "partition".
func (r *Row) LostTo() string {
	if !r.Lost {
		return ""
	}
	for _, all := range r.Comments {
		for c := range strings.SplitSeq(all, "; ") {
			if name, ok := strings.CutSuffix(c, ": dropped"); ok {
				return strings.TrimPrefix(name, "fault ")
			}
			for _, begin := range []string{"dropped by the switch: ", "dropped: ", "lost-fault fault "} {
				if _, why, ok := strings.Cut(c, begin); ok {
					return why
				}
			}
		}
	}
	return "dropped"
}
