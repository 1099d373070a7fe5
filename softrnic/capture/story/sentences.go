package story

import (
	"fmt"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxTold is how many retries of one transfer are told.
const maxTold = 8

// sentences makes the sentences of one transfer.
type sentences struct {
	t      *teller
	l      *transfers
	m      *transfer
	number int    // of m in the flow, from 1
	own    string // requester
	peer   string
	out    []string
}

// add adds a sentence. It begins with a capital letter, unless it begins with a host.
func (s *sentences) add(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	if !strings.HasPrefix(text, s.own) && !strings.HasPrefix(text, s.peer) {
		text = strings.ToUpper(text[:1]) + text[1:]
	}
	s.out = append(s.out, text)
}

// story tells the story of the transfer at place i.
func (t *teller) story(l *transfers, i int) Story {
	f, m := l.flow, l.list[i]
	s := sentences{t: t, l: l, m: m, number: i + 1, own: t.host(f.Requester.String()), peer: t.host(f.Responder.String())}
	for k, r := range m.tries[:min(len(m.tries), maxTold)] {
		s.retry(k, r)
	}
	if n := len(m.tries) - maxTold; n > 0 {
		s.add("%s more of these followed, the last with #%d.", plural(n, "retry"), m.tries[len(m.tries)-1].head.Number)
	}
	s.ending()
	return Story{
		From: s.own, To: s.peer, QPN: uint32(f.QPN), Number: s.number, Op: opName(m.first.Opcode()), Packet: m.first.Number,
		Outcome: m.outcome(), Text: s.transfer(), Because: s.out,
	}
}

// opName names the operation of a message by its first packet.
func opName(op wire.Opcode) string {
	switch {
	case op.Is(wire.OpSend) && !op.Is(wire.OpWrite):
		return "SEND"
	case op.Is(wire.OpWrite):
		return "WRITE"
	case op.Is(wire.OpRead):
		return "READ"
	}
	return strings.TrimPrefix(op.String(), "RC_")
}

// transfer names the transfer with its packets and its target.
func (s *sentences) transfer() string {
	m, h := s.m, &s.m.first.Header
	text := fmt.Sprintf("%s %d", opName(m.first.Opcode()), s.number)
	if m.last != m.first {
		text += fmt.Sprintf(" (#%d to #%d, PSNs %+d to %+d", m.first.Number, m.last.Number, m.at, m.end-1)
	} else {
		text += fmt.Sprintf(" (#%d, PSN %+d", m.first.Number, m.at)
	}
	if m.bytes > 0 {
		text += fmt.Sprintf(", %d bytes", m.bytes)
	}
	switch {
	case h.BTH.Opcode.Has(wire.HasRETH):
		text += fmt.Sprintf(" at %#x with R_Key %#x", h.RETH.VA, h.RETH.RKey)
	case h.BTH.Opcode.Has(wire.HasAtomicETH):
		text += fmt.Sprintf(", 8 bytes at %#x with R_Key %#x", h.AtomicETH.VA, h.AtomicETH.RKey)
	}
	return text + ")"
}

// place names a packet of the transfer.
func (s *sentences) place(p *flows.Packet) string {
	m, at := s.m, s.l.psn(p)
	switch n := m.end - m.at; {
	case p.IsAnswer() && m.first.Opcode().Is(wire.OpRead) && at >= m.at && at < m.end:
		return fmt.Sprintf("response %d of %d (#%d, PSN %+d)", at-m.at+1, n, p.Number, at)
	case p.IsAnswer():
		return fmt.Sprintf("the answer #%d (%v, PSN %+d)", p.Number, answerName(p), at)
	case n > 1 && !m.first.Opcode().Is(wire.OpRead) && at >= m.at && at < m.end:
		return fmt.Sprintf("packet %d of %d (#%d, PSN %+d)", at-m.at+1, n, p.Number, at)
	}
	return fmt.Sprintf("the request #%d (PSN %+d)", p.Number, at)
}

func answerName(p *flows.Packet) string {
	if p.Opcode().Has(wire.HasAETH) && !p.Header.AETH.Syndrome.IsAck() {
		return p.Header.AETH.Syndrome.String()
	}
	return p.Opcode().String()
}

// retry tells of one series of packets that were sent again.
func (s *sentences) retry(k int, r *retry) {
	then := ""
	if k > 0 {
		then = "then "
	}
	if r.notReady != nil {
		s.add("%s%s had no receive posted for it: the RNR NAK #%d asks %s to wait before it sends PSN %+d again.", then, s.peer,
			r.notReady.Number, s.own, s.l.psn(r.notReady))
		s.sentAgain(r)
		return
	}
	switch gone := s.t.packet(r.resend.Gone); {
	case gone != nil:
		s.add("%s%s was lost: %s.", then, s.place(gone), dropped(gone))
	case r.resend.Why == ladder.Asked && r.resend.First == 0:
		s.add("%sPSN %+d was lost before it came to the place of the capture.", then, s.l.psn(r.head))
	case r.resend.Why == ladder.Asked:
		s.add("%s%s was lost behind the place of the capture, on the way to %s.", then, s.place(s.original(r)), s.peer)
	}
	switch r.resend.Why {
	case ladder.Asked:
		if nak := s.t.packet(r.resend.Cause); nak != nil {
			s.add("%s noticed the gap, and asked for PSN %+d by #%d (%v).", s.maker(nak), s.l.psn(nak), nak.Number, nak.Header.AETH.Syndrome)
			s.made(nak)
		}
	case ladder.Overtaken:
		what := "the answer to a later request"
		if p := s.t.packet(r.resend.Cause); p != nil && s.l.of(s.l.psn(p)) == s.m {
			what = "a later response of it"
		}
		s.add("%s got #%d, %s, and that to PSN %+d not: an implied NAK.", s.own, r.resend.Cause, what, s.l.psn(r.head))
	case ladder.Unanswered:
		s.add("%sno answer to PSN %+d came for %v, and nothing asked for it: the ACK timer of %s.", then, s.l.psn(r.head), round(r.resend.Wait), s.own)
	case ladder.Behind:
		s.add("%sa packet before it was sent again, #%d, and all behind it with it: go-back-N.", then, r.resend.Cause)
	case ladder.Once, ladder.Repeated: // do not begin a retry
	}
	s.sentAgain(r)
}

// maker names who has made an answer: the peer, or the program of a switch, whose comment the capture has.
func (s *sentences) maker(p *flows.Packet) string {
	if byProgram(p) == "" {
		return s.peer
	}
	return "The switch"
}

// made tells which program of the switch has made an answer, if one has.
func (s *sentences) made(p *flows.Packet) {
	if c := byProgram(p); c != "" {
		s.add("The answer #%d is not of %s: %s.", p.Number, s.peer, dump.OneLine(c))
	}
}

// byProgram returns the comment that names the program of a switch; "" if there is none.
func byProgram(p *flows.Packet) string {
	for _, c := range p.Comments {
		if strings.Contains(c, "(program ") {
			return c
		}
	}
	return ""
}

// original returns the packet of which r.head is the copy, or r.head if the capture does not have it.
func (s *sentences) original(r *retry) *flows.Packet {
	if p := s.t.packet(r.resend.First); p != nil {
		return p
	}
	return r.head
}

func (s *sentences) sentAgain(r *retry) {
	if r.packets == 1 {
		s.add("%s sent it again as #%d.", s.own, r.head.Number)
		return
	}
	others := ""
	if r.others > 0 {
		others = fmt.Sprintf(", also those of %s behind it", plural(r.others, "transfer"))
	}
	s.add("%s sent %s again, #%d to #%d%s.", s.own, plural(r.packets, "packet"), r.head.Number, r.last.Number, others)
}

// dropped says what has dropped a packet.
func dropped(p *flows.Packet) string {
	if p.Verdict == dump.BadICRC && !p.Lost() {
		return "its ICRC is wrong, so it is dropped where it arrives"
	}
	return dump.OneLine(strings.Join(p.Comments, "; "))
}

// ending tells how the transfer ended.
func (s *sentences) ending() {
	m := s.m
	switch {
	case m.fatal != nil:
		s.failed()
	case m.done != nil:
		if len(m.tries) > 0 && m.done.Number < m.tries[0].head.Number {
			s.add("#%d had ended it already, so the retry changed nothing.", m.done.Number)
			return
		}
		by := fmt.Sprintf("#%d acknowledges it", m.done.Number)
		if m.done.Opcode().Is(wire.OpRead | wire.OpAtomic) {
			by = fmt.Sprintf("#%d answers it", m.done.Number)
		}
		s.add("%s, %v after its first packet: healed.", by, round(m.done.Time-m.first.Time))
	case s.l.ended != nil:
		s.add("it has no answer: #%d has ended the connection.", s.l.ended.Number)
	default:
		s.add("it has no answer until the end of the capture, after %s. When retries run out, the status is transport retry counter exceeded.",
			plural(len(m.tries), "retry"))
	}
}

// failed tells why the peer refused the transfer, as far as a capture shows it.
func (s *sentences) failed() {
	m := s.m
	nak := m.fatal
	syndrome := nak.Header.AETH.Syndrome
	s.add("%s refused it by #%d (%v, PSN %+d), %v after its first packet: %s.", s.maker(nak), nak.Number, syndrome, s.l.psn(nak), round(nak.Time-m.first.Time), meaning(syndrome))
	if syndrome == wire.NakRemoteAccess {
		if text := s.t.keyStory(m); text != "" {
			s.add("%s", text)
		}
	}
	if s.made(nak); s.maker(nak) == s.peer {
		s.add("The NAK carries no reason: while the rack runs, `rdmalab why` has it from the NIC of %s.", s.peer)
	}
	if behind := len(s.l.list) - s.number; behind > 0 {
		s.add("%s behind it in the capture had no effect: the connection has ended.", plural(behind, "transfer"))
	}
}

// meaning says what a fatal NAK means.
func meaning(s wire.Syndrome) string {
	if text, ok := meanings[s]; ok {
		return text
	}
	return "the responder ended the connection"
}

// meanings are the texts of meaning.
var meanings = map[wire.Syndrome]string{
	wire.NakInvalid:      "an invalid request: too long for the receive, out of order within its message, or an operation that the queue pair does not allow",
	wire.NakRemoteAccess: "a remote access error: no region has the R_Key, the range ends before the request does, or the region or the queue pair does not allow the operation",
	wire.NakRemoteOp:     "a remote operation error: the responder could not complete the request",
}
