package story

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// transfer is one message of a flow at one tap.
type transfer struct {
	at, end int // PSNs relative to the flow: the first, and the one behind the last
	first   *flows.Packet
	last    *flows.Packet // the newest packet sent for the first time
	bytes   int
	ended   bool          // its last packet is captured
	read    map[int]bool  // of a READ: the responses that have arrived, by relative PSN
	done    *flows.Packet // the answer that completed it
	fatal   *flows.Packet // the NAK that failed it
	tries   []*retry
}

// retry is a series of packets that were sent again because of one cause.
type retry struct {
	head    *flows.Packet
	resend  ladder.Resend
	packets int
	// notReady is the RNR NAK that came before it; nil if none did.
	notReady *flows.Packet
	last     *flows.Packet
	others   int // transfers behind the first one that were sent again with it
	behind   *transfer
}

// transfers is the transfers of one flow, in the order of their PSNs.
type transfers struct {
	flow *flows.Flow
	list []*transfer
	done int // transfers before this place are complete
	// ended is the fatal NAK of the flow.
	ended *flows.Packet
	run   *retry
	rnr   map[int]*flows.Packet // RNR NAKs that no retry has followed yet, by relative PSN
}

// transfers makes the transfers of a flow, as the tap of its first packet shows them.
func (t *teller) transfers(f *flows.Flow) transfers {
	l := transfers{flow: f, rnr: map[int]*flows.Packet{}}
	if len(f.Packets) == 0 {
		return l
	}
	tap := t.book.Packets[f.Packets[0]].Tap()
	for _, k := range f.Packets {
		p := &t.book.Packets[k]
		switch {
		case p.Tap() != tap || !p.Opcode().Reliable() || p.Stray:
		case p.IsAnswer():
			if !p.Lost() && p.Verdict != dump.BadICRC {
				l.answer(p)
			}
		case t.again[k].Why != ladder.Once:
			l.resent(p, t.again[k])
		default:
			l.request(p)
		}
	}
	return l
}

// maxBehind is how many transfers with newer PSNs may come before one that is captured for the first time; one further
// behind is not told of.
const maxBehind = 1 << 12

func (l *transfers) psn(p *flows.Packet) int { return int(wire.Diff(p.PSN(), l.flow.First)) }

// request takes a request that is sent for the first time, or whose first copy was lost before the tap.
func (l *transfers) request(p *flows.Packet) {
	at, op := l.psn(p), p.Opcode()
	i, _ := slices.BinarySearchFunc(l.list, at, func(m *transfer, at int) int { return m.at - at }) // the first behind at
	if i > 0 {
		switch m := l.list[i-1]; {
		case at < m.end: // a packet in the gap of a message
			m.bytes += p.Length
			return
		case op.Is(wire.OpMiddle|wire.OpLast) && !m.ended:
			m.end, m.last, m.bytes, m.ended = at+1, p, m.bytes+p.Length, op.Is(wire.OpLast)
			l.join(i - 1)
			return
		}
	}
	if len(l.list)-i > maxBehind {
		return
	}
	m := &transfer{at: at, end: at + p.Answers(), first: p, last: p, bytes: p.Length, ended: op.Is(wire.OpLast | wire.OpOnly)}
	if op.Plain() == wire.RCReadRequest {
		m.bytes, m.ended = int(p.Header.RETH.Length), true
	}
	l.list = slices.Insert(l.list, i, m) // nearly always at the end
	if i < l.done {
		l.done++ // what is behind it was acknowledged with it
	}
	l.join(i)
}

// join makes the transfer at place i and the next one a single one, if the next one is the rest of its message.
func (l *transfers) join(i int) {
	m := l.list[i]
	if m.ended || i+1 == len(l.list) || !l.list[i+1].first.Opcode().Is(wire.OpMiddle|wire.OpLast) {
		return
	}
	rest := l.list[i+1]
	m.end, m.last, m.bytes, m.ended = rest.end, rest.last, m.bytes+rest.bytes, rest.ended
	m.done, m.fatal, m.tries = rest.done, rest.fatal, append(m.tries, rest.tries...)
	if l.run != nil && l.run.behind == rest {
		l.run.behind = m
	}
	l.list = slices.Delete(l.list, i+1, i+2)
	if i+1 < l.done {
		l.done--
	}
}

// of returns the transfer with a relative PSN; nil if there is none.
func (l *transfers) of(at int) *transfer {
	i, found := slices.BinarySearchFunc(l.list, at, func(m *transfer, at int) int { return m.at - at })
	if !found {
		i--
	}
	if i < 0 || at >= l.list[i].end {
		return nil
	}
	return l.list[i]
}

// resent takes a request that is sent again.
func (l *transfers) resent(p *flows.Packet, r ladder.Resend) {
	at := l.psn(p)
	m := l.of(at)
	if m == nil && r.First == 0 {
		l.request(p)
		m = l.of(at)
	}
	if m == nil {
		l.run = nil
		return
	}
	if p.Opcode().Plain() == wire.RCReadRequest { // what it asks for comes again
		for k := range p.Answers() {
			delete(m.read, at+k)
		}
	}
	if r.Why != ladder.Behind || l.run == nil {
		l.run = &retry{head: p, resend: r, behind: m, notReady: l.rnr[at]}
		delete(l.rnr, at)
		m.tries = append(m.tries, l.run)
	}
	run := l.run
	if run.packets++; run.behind != m {
		run.behind = m
		run.others++
	}
	run.last = p
}

// answer takes an answer that has arrived.
func (l *transfers) answer(p *flows.Packet) {
	op, at := p.Opcode(), l.psn(p)
	s := p.Header.AETH.Syndrome
	negative := op.Has(wire.HasAETH) && !s.IsAck()
	switch {
	case negative && s.IsNak() && s != wire.NakPSNSequence:
		if m := l.of(at); m != nil && m.fatal == nil && m.done == nil {
			m.fatal = p
			l.complete(m.at, p)
			if l.ended == nil {
				l.ended = p
			}
		}
	case negative: // acknowledges what is before it
		if s.IsRNR() {
			l.rnr[at] = p
		}
		l.complete(at, p)
	case op.Is(wire.OpRead) && l.of(at) != nil:
		m := l.of(at)
		if m.read == nil {
			m.read = map[int]bool{}
		}
		if m.read[at] = true; len(m.read) == m.end-m.at {
			l.complete(m.end, p)
		} else {
			l.complete(m.at, p) // what is before the READ
		}
	default:
		l.complete(at+1, p)
	}
}

// complete notes that p acknowledges all PSNs before end. A READ or an atomic is complete by its own answer
// alone.
func (l *transfers) complete(end int, p *flows.Packet) {
	for l.done < len(l.list) {
		m := l.list[l.done]
		at := l.psn(p)
		if m.end > end || !m.ended && m.end == end || m.first.Opcode().Is(wire.OpAnswered) && (at < m.at || at >= m.end) {
			return
		}
		if m.fatal == nil {
			m.done = p
		}
		l.done++
	}
}

// outcome returns how m ended; "" means without trouble.
func (m *transfer) outcome() Outcome {
	switch {
	case m.fatal != nil:
		return Failed
	case len(m.tries) == 0:
		return ""
	case m.done != nil:
		return Healed
	}
	return Open
}
