package conform

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// answer handles an answer.
func (w *walker) answer(p *flows.Packet) (Violation, bool) {
	at := w.relative(p.PSN())
	if at < 0 || len(w.reqs) == 0 {
		return none() // to a request from before the capture
	}
	s := p.Header.AETH.Syndrome
	nak := p.Opcode().Plain() == wire.RCAck && !s.IsAck()
	r := w.find(at)
	for _, rule := range []func() (Violation, bool){
		func() (Violation, bool) { return w.served(p) },
		func() (Violation, bool) { return w.dead(p, at) },
		func() (Violation, bool) { return w.sent(p, at, r, nak) },
		func() (Violation, bool) { return w.kind(p, at, r, nak) },
		func() (Violation, bool) { return w.counted(p, at, nak) },
		func() (Violation, bool) { return w.forward(p, at, nak) },
		func() (Violation, bool) { return w.credit(p) },
	} {
		if v, bad := rule(); bad {
			return v, true
		}
	}
	w.note(p, at, r, nak)
	return none()
}

// find returns the request with the relative PSN at; nil if there is none.
func (w *walker) find(at int) *request {
	i, found := slices.BinarySearchFunc(w.reqs, at, func(r *request, at int) int { return r.at - at })
	switch {
	case found:
		return w.reqs[i]
	case i > 0 && w.reqs[i-1].end() > at:
		return w.reqs[i-1]
	}
	return nil
}

// dead refuses an answer behind a fatal NAK.
func (w *walker) dead(p *flows.Packet, at int) (Violation, bool) {
	if w.fatal != nil && at >= w.relative(w.fatal.PSN()) && !w.touched {
		return broken(p, AfterNak, "#%d was %v", w.fatal.Number, w.fatal.Header.AETH.Syndrome)
	}
	return none()
}

// sent refuses an answer to what has not arrived.
func (w *walker) sent(p *flows.Packet, at int, r *request, nak bool) (Violation, bool) {
	wholeEnd := 0
	if w.whole > 0 {
		wholeEnd = w.reqs[w.whole-1].end()
	}
	switch sequence := nak && p.Header.AETH.Syndrome == wire.NakPSNSequence; {
	case at >= w.reached:
		return broken(p, Unsent, "the newest request that can have arrived is %+d, this is %+d", w.reached-1, at)
	case sequence && w.asked[at] && !w.touched:
		return broken(p, OneNak, "%+d was asked for before, and was not sent since", at)
	case sequence && at <= w.newest && !w.touched:
		return broken(p, NakRange, "%+d was acknowledged before", at)
	case sequence && at > wholeEnd:
		return broken(p, NakRange, "it asks for %+d, %+d is missing", at, wholeEnd)
	case nak || at < wholeEnd:
		return none()
	}
	// Something before the acknowledged request is missing.
	if w.whole < len(w.reqs) && w.reqs[w.whole].at > wholeEnd {
		gap := w.reqs[w.whole].p
		return broken(gap, PSN, "%+d is missing before it, and #%d acknowledges %+d", wholeEnd, p.Number, at)
	}
	return broken(p, Missing, "%+d has not arrived", wholeEnd)
}

// kind holds the opcode of an answer, and what it carries, against its request.
func (w *walker) kind(p *flows.Packet, at int, r *request, nak bool) (Violation, bool) {
	if r == nil {
		return none()
	}
	asked, op, s := r.p.Opcode().Plain(), p.Opcode().Plain(), p.Header.AETH.Syndrome
	if len(r.p.Comments) > 0 {
		return none()
	}
	switch {
	case nak && s.IsRNR() && asked.Is(wire.OpWrite) && !asked.Is(wire.OpImm):
		return broken(p, RNR, "#%d is %v", r.p.Number, asked)
	case nak && s == wire.NakRemoteAccess && asked.Is(wire.OpSend) && !asked.Is(wire.OpInv):
		return broken(p, NakCode, "%v for %v (#%d)", s, asked, r.p.Number)
	case nak:
		return none()
	case op == wire.RCAck && asked.Is(wire.OpAnswered) && !r.answered && w.copies == 0 && !w.touched: // C9-105: a duplicate's ACK
		return broken(p, Kind, "%v answers %v (#%d)", op, asked, r.p.Number)
	case op == wire.RCAtomicAck && (!asked.Has(wire.HasAtomicETH)):
		return broken(p, Kind, "%v answers %v (#%d)", op, asked, r.p.Number)
	case op == wire.RCAtomicAck:
		return r.atomic(p)
	case op.Is(wire.OpRead) && asked == wire.RCReadRequest:
		return w.read(p, at, r)
	case op == wire.RCReadResponseOnly && asked.Is(wire.OpFlush|wire.OpAtomic) && !asked.Has(wire.HasAtomicETH):
		if p.Length > 0 {
			return broken(p, ReadLength, "%d bytes answer %v (#%d)", p.Length, asked, r.p.Number)
		}
	case op.Is(wire.OpRead):
		return broken(p, Kind, "%v answers %v (#%d)", op, asked, r.p.Number)
	}
	return none()
}

// atomic holds the answer to an atomic against the rules.
func (r *request) atomic(p *flows.Packet) (Violation, bool) {
	switch va := r.p.Header.AtomicETH.VA; {
	case va%8 != 0:
		return broken(p, Alignment, "#%d is at %#x", r.p.Number, va)
	case r.original != nil && r.original.Header.AtomicAck != p.Header.AtomicAck:
		return broken(p, Replay, "it is %#x, in #%d it was %#x", p.Header.AtomicAck, r.original.Number, r.original.Header.AtomicAck)
	}
	if r.original == nil {
		r.original = p
	}
	return none()
}

// read holds a READ response against the READ, and its parts that were sent again.
func (w *walker) read(p *flows.Packet, at int, r *request) (Violation, bool) {
	place, n := wire.OpFlags(0), 0
	for _, from := range append([]int{r.at}, r.parts...) {
		if from > at {
			continue
		}
		first, last := at == from, at == r.end()-1
		switch {
		case first && last:
			place = wire.OpOnly
		case first:
			place = wire.OpFirst
		case last:
			place = wire.OpLast
		default:
			place = wire.OpMiddle
		}
		if p.Opcode().Is(place) {
			n = from + 1
			break
		}
	}
	if n == 0 {
		return broken(p, ReadOrder, "%v is answer %d of %d to #%d", p.Opcode(), at-r.at+1, r.n, r.p.Number)
	}
	want := w.mtu()
	if at == r.end()-1 {
		want = int(r.p.Header.RETH.Length) - (r.n-1)*w.mtu()
	}
	if p.Length != want {
		return broken(p, ReadLength, "it has %d bytes, not %d", p.Length, want)
	}
	return none()
}

// forward refuses an answer that goes back, if no duplicate explains it.
func (w *walker) forward(p *flows.Packet, at int, nak bool) (Violation, bool) {
	back := at <= w.newest
	if nak {
		back = at-1 < w.newest
	}
	if !back || w.touched {
		return none()
	}
	if w.copies--; w.copies < 0 {
		return broken(p, Backward, "%+d was answered before, and no request was sent again", at)
	}
	return none()
}

// credit refuses ACKs with and without credits in one flow.
func (w *walker) credit(p *flows.Packet) (Violation, bool) {
	if !p.Opcode().Has(wire.HasAETH) || !p.Header.AETH.Syndrome.IsAck() {
		return none()
	}
	none31 := func(q *flows.Packet) bool { return q.Header.AETH.Syndrome == wire.AckNoCredits }
	switch {
	case w.credits == nil:
		w.credits = p
	case none31(w.credits) != none31(p):
		return broken(p, Credits, "%v, #%d was %v", p.Header.AETH.Syndrome, w.credits.Number, w.credits.Header.AETH.Syndrome)
	}
	return none()
}

// note remembers the answer p.
func (w *walker) note(p *flows.Packet, at int, r *request, nak bool) {
	s := p.Header.AETH.Syndrome
	if nak {
		w.newest = max(w.newest, at-1)
		switch {
		case s == wire.NakPSNSequence:
			w.asked[at] = true
		case !s.IsRNR() && s != wire.NakPSNSequence:
			w.fatal = p
		}
		return
	}
	w.newest = max(w.newest, at)
	if r != nil && !r.answered && r.p.Opcode().Is(wire.OpAnswered) && at == r.end()-1 {
		r.answered = true
		w.open--
	}
}
