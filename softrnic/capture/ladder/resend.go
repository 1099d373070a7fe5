package ladder

import (
	"cmp"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Why is what has made a NIC send a packet again.
type Why uint8

// Reasons. Once is that of a packet that is not sent again.
const (
	Once       Why = iota
	Asked          // a NAK has asked for the packet
	Behind         // a packet before it is sent again, and all behind it follow
	Overtaken      // the answer to a later request has come before that to this READ or atomic
	Unanswered     // nothing in the capture asks for it: the NIC has waited, and no answer came
	Repeated       // an answer to a request that was sent again
)

// Resend says why a packet is sent again. It is zero for other packets.
type Resend struct {
	First int // number of the first copy; 0 means that the capture does not have it
	Why   Why
	// Cause is the number of the NAK, of the packet that the resent ones follow, of the answer that came
	// too early, or of the request that is answered again; 0 for Unanswered.
	Cause int
	Wait  int64 // nanoseconds since the last copy
	// Gone is the number of the lost packet that has led to it, a copy or (GoneAnswer) an answer; 0 means
	// that the capture does not show one.
	Gone       int
	GoneAnswer bool
}

// Resends says of each packet of a book, which must be sorted, why it is sent again.
func Resends(b *flows.Book) []Resend {
	known, again := newPast(), make([]Resend, len(b.Packets))
	for i := range b.Packets {
		if p := &b.Packets[i]; p.Flow != nil && p.Verdict != dump.Malformed {
			again[i] = known.add(p)
		}
	}
	return again
}

// past has what is known of the flows.
type past struct {
	flows map[*flows.Flow]*lane
}

func newPast() past { return past{map[*flows.Flow]*lane{}} }

// copyOf names the copies of one packet on one link.
type copyOf struct {
	link   string
	psn    wire.PSN
	opcode wire.Opcode
}

// copies is what is known of the copies of a packet.
type copies struct {
	first, last int
	lastTime    int64
}

// number is a packet.
type number struct {
	psn wire.PSN
	n   int
}

// read is a READ request.
type read struct {
	psn     wire.PSN
	packets int
	link    string
}

// lane is what is known of one flow.
type lane struct {
	copies map[copyOf]copies
	asked  map[wire.PSN]int
	lost   map[copyOf]int   // by packet on any link
	answer number           // the newest answer that was not lost
	gone   number           // the newest answer that was lost
	goneAt map[wire.PSN]int // all of them
	reads  []read           // the last ones
	series map[string]series
	again  []number // the last requests that were sent again
}

// series is a run of packets that are sent again on one link.
type series struct {
	head, last int
	psn        wire.PSN
	time       int64
}

// leastTimer is in nanoseconds. A shorter pause after an acknowledgement is taken for one of the NIC itself, which
// had no processor, and not for an ACK timeout. A program may choose a shorter timeout: what its NIC sends again is
// told as go-back-N then.
const leastTimer = 16e6

// maxAgain is how many requests that were sent again are remembered for the answers to them.
const maxAgain = 512

// maxReads is how many READs are looked at for a request of a part of one.
const maxReads = 64

// add notes p and returns why it is sent again. An acknowledgement is a copy of another only behind a request that
// was sent again: a responder may also repeat it by itself.
func (s past) add(p *flows.Packet) Resend {
	l := s.flows[p.Flow]
	if l == nil {
		l = &lane{copies: map[copyOf]copies{}, asked: map[wire.PSN]int{}, lost: map[copyOf]int{}, goneAt: map[wire.PSN]int{}, series: map[string]series{}}
		s.flows[p.Flow] = l
	}
	if !p.Opcode().Reliable() {
		return Resend{}
	}
	var r Resend
	if p.IsAnswer() {
		r = l.response(p)
	} else {
		r = l.request(p)
	}
	if p.Lost() || p.Verdict == dump.BadICRC {
		l.lost[copyOf{"", p.PSN(), kindOf(p.Opcode())}] = p.Number
	}
	return r
}

// response notes an answer, and what it asks for.
func (l *lane) response(p *flows.Packet) Resend {
	lost := p.Lost() || p.Verdict == dump.BadICRC
	syndrome := p.Header.AETH.Syndrome
	switch asks := syndrome == wire.NakPSNSequence || syndrome.IsRNR(); {
	case p.Opcode().Has(wire.HasAETH) && asks && lost:
		delete(l.asked, p.PSN())
		l.gone = number{p.PSN(), p.Number}
	case p.Opcode().Has(wire.HasAETH) && asks:
		l.asked[p.PSN()] = p.Number
	case lost:
		l.gone, l.goneAt[p.PSN()] = number{p.PSN(), p.Number}, p.Number
	default:
		l.answer = number{p.PSN(), p.Number}
	}
	if p.Opcode().Plain() == wire.RCAck && !syndrome.IsAck() {
		return Resend{}
	}
	key := copyOf{p.Link, p.PSN(), kindOf(p.Opcode())}
	c := l.copies[key]
	gone := after(l.lost[copyOf{"", key.psn, key.opcode}], c.last-1)
	l.note(key, c, p)
	before := max(c.last, gone) // on this link, or a lost one on the way to it
	if before == 0 {
		return Resend{}
	}
	cause := l.answers(p.PSN(), before)
	if cause == 0 {
		return Resend{}
	}
	return Resend{First: cmp.Or(c.first, gone), Why: Repeated, Cause: cause, Gone: gone}
}

// answers returns the number of the request that was sent again, behind packet `before`, and that an answer with the PSN
// answers: of those up to the PSN the nearest, and of its copies the newest. It returns 0 if there is none.
func (l *lane) answers(psn wire.PSN, before int) int {
	var best number
	for i := len(l.again) - 1; i >= 0 && l.again[i].n > before; i-- {
		a := l.again[i]
		if wire.Diff(a.psn, psn) <= 0 && (best.n == 0 || wire.Diff(a.psn, best.psn) > 0) {
			best = a
		}
	}
	return best.n
}

// kindOf returns the opcode by which copies of a packet are known: a READ response that is sent again can be another
// part of the answer than the first time.
func kindOf(op wire.Opcode) wire.Opcode {
	if op = op.Plain(); op.Is(wire.OpResponse) && op.Is(wire.OpRead) {
		return wire.RCReadResponseFirst
	}
	return op
}

func (l *lane) note(key copyOf, c copies, p *flows.Packet) {
	if c.first == 0 {
		c.first = p.Number
	}
	c.last, c.lastTime = p.Number, p.Time
	l.copies[key] = c
}

// request notes a request.
func (l *lane) request(p *flows.Packet) Resend {
	key := copyOf{p.Link, p.PSN(), kindOf(p.Opcode())}
	c, known := l.copies[key]
	if !known {
		c, known = l.part(p)
	}
	before := c
	l.note(key, c, p)
	if p.Opcode().Plain() == wire.RCReadRequest {
		if len(l.reads) == maxReads {
			l.reads = append(l.reads[:0], l.reads[1:]...)
		}
		l.reads = append(l.reads, read{p.PSN(), p.Answers(), p.Link})
	}
	if !known && l.asked[p.PSN()] == 0 {
		delete(l.series, p.Link)
		return Resend{}
	}
	if len(l.again) == maxAgain {
		l.again = append(l.again[:0], l.again[maxAgain/2:]...)
	}
	l.again = append(l.again, number{p.PSN(), p.Number})
	if !known {
		before.lastTime = p.Time
	}
	r := Resend{First: before.first, Wait: p.Time - before.lastTime, Gone: after(l.lost[copyOf{"", key.psn, key.opcode}], before.last-1)}
	if n := l.goneAt[key.psn]; r.Gone == 0 && n > before.last {
		r.Gone, r.GoneAnswer = n, true
	}
	if r.Gone == 0 && l.gone.n > before.last && wire.Diff(l.gone.psn, key.psn) >= 0 {
		r.Gone, r.GoneAnswer = l.gone.n, true
	}
	l.reason(&r, p, before)
	return r
}

// reason sets Why and Cause of a request that is sent again; c is what was known of its copies.
func (l *lane) reason(r *Resend, p *flows.Packet, c copies) {
	s, running := l.series[p.Link]
	switch {
	case l.asked[p.PSN()] > c.last:
		r.Why, r.Cause = Asked, l.asked[p.PSN()]
	case running && l.follows(p, s, r.Wait):
		r.Why, r.Cause = Behind, s.head
	case p.Opcode().Is(wire.OpAnswered) && l.answer.n > c.last && wire.Diff(l.answer.psn, p.PSN()) > 0:
		r.Why, r.Cause = Overtaken, l.answer.n
	default:
		r.Why = Unanswered
	}
	if r.Why != Behind {
		s.head = p.Number
	}
	s.psn, s.time, s.last = p.PSN(), p.Time, p.Number
	l.series[p.Link] = s
}

// follows reports whether p, whose last copy was sent wait nanoseconds ago, goes on with a series. A timeout would
// begin with the oldest packet that is not acknowledged.
func (l *lane) follows(p *flows.Packet, s series, wait int64) bool {
	if wire.Diff(p.PSN(), s.psn) <= 0 {
		return false
	}
	acknowledged := l.answer.n > s.last && wire.Diff(l.answer.psn, s.psn) >= 0
	pause := p.Time - s.time
	return !acknowledged || pause < leastTimer || 2*pause <= wait
}

// part finds the READ of which p asks for the rest.
func (l *lane) part(p *flows.Packet) (copies, bool) {
	if p.Opcode().Plain() != wire.RCReadRequest {
		return copies{}, false
	}
	for i := len(l.reads) - 1; i >= 0; i-- {
		r := &l.reads[i]
		if d := int(wire.Diff(p.PSN(), r.psn)); d > 0 && d < r.packets && r.link == p.Link {
			return l.copies[copyOf{p.Link, r.psn, wire.RCReadRequest}], true
		}
	}
	return copies{}, false
}

// after returns n if it is behind limit, and otherwise 0.
func after(n, limit int) int {
	if n > limit {
		return n
	}
	return 0
}
