package conform

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/flows"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// maxParts is from how many places on a READ is remembered to have been sent again.
const maxParts = 64

// maxBehind is how many requests with newer PSNs may come before one that is captured for the first time; one further
// behind is not looked at.
const maxBehind = 1 << 12

// maxMTU is the largest path MTU in bytes.
const maxMTU = 4096

// request is what is known of the request with one PSN, or of a READ with the PSNs of its answers.
type request struct {
	at, n   int // relative PSN, and how many
	p       *flows.Packet
	arrived bool  // a copy can have reached the responder
	parts   []int // relative PSNs from which a READ was sent again
	bytes   int   // of the message up to here; -1 if its first packet is not known
	first   *request
	// answered is true when the answer has come that completes the request.
	answered bool
	original *flows.Packet // first answer of an atomic
}

// end returns the relative PSN behind r.
func (r *request) end() int { return r.at + r.n }

// walker is the state of a flow at one tap.
type walker struct {
	flow    *flows.Flow
	base    wire.PSN
	touched bool // a fault has delayed, doubled or changed a packet
	reqs    []*request
	// messages[i] is how many messages end in reqs[:i]; whole is how many of reqs have arrived without a
	// gap before them.
	messages []int
	whole    int
	reached  int // relative PSN behind the newest request that can have arrived

	newest  int // relative PSN of the newest answer, -1 before the first
	copies  int // answers to duplicates that are still due
	msn     msnRange
	service *flows.Packet // says of which service the queue pair is
	fatal   *flows.Packet
	credits *flows.Packet // the first ACK
	open    int           // READs and atomics without answer
	asked   map[int]bool  // the relative PSNs for which a sequence NAK has asked since they were sent
}

func newWalker(f *flows.Flow, touched bool) *walker {
	w := &walker{flow: f, base: f.First, touched: touched, newest: -1, messages: []int{0}, asked: map[int]bool{}}
	if f.Agreed != nil {
		if d := wire.Diff(f.First, f.Agreed.PSN); d > 0 && d < flows.Far {
			w.base = f.Agreed.PSN
		}
	}
	return w
}

// relative returns a PSN relative to the first of the flow.
func (w *walker) relative(psn wire.PSN) int { return int(wire.Diff(psn, w.base)) }

// request handles a request.
func (w *walker) request(p *flows.Packet) (Violation, bool) {
	at := w.relative(p.PSN())
	switch {
	case p.Stray:
		return broken(p, PSN, "it is far from that of the requests before and behind it")
	case at < 0 && w.flow.Agreed != nil && p.PSN() == w.flow.First:
		return broken(p, Start, "it is %#x, agreed was %#x", uint32(p.PSN()), uint32(w.flow.Agreed.PSN))
	case at < 0:
		return none() // from before the capture
	case w.flow.Agreed != nil && p.PSN() == w.flow.First && wire.Diff(p.PSN(), w.flow.Agreed.PSN) != int32(at): //nolint:gosec // 24 bits
		return broken(p, Start, "it is %#x, agreed was %#x", uint32(p.PSN()), uint32(w.flow.Agreed.PSN))
	}
	if v, bad := w.served(p); bad {
		return v, true
	}
	delete(w.asked, at)
	i, found := slices.BinarySearchFunc(w.reqs, at, func(r *request, at int) int { return r.at - at })
	switch {
	case found:
		return w.again(w.reqs[i], p)
	case i > 0 && w.reqs[i-1].end() > at:
		return w.part(w.reqs[i-1], p, at)
	}
	if len(w.reqs)-i > maxBehind {
		return none()
	}
	r := &request{at: at, n: p.Answers(), p: p, arrived: arrives(p), bytes: -1}
	w.reqs = slices.Insert(w.reqs, i, r)
	if i < len(w.reqs)-1 && r.end() > w.reqs[i+1].at {
		return broken(p, PSN, "the READ has %d answers, and #%d has the PSN of one of them", r.n, w.reqs[i+1].p.Number)
	}
	if v, bad := w.message(i); bad {
		return v, true
	}
	if v, bad := payload(p, w.flow.MTU); bad {
		return v, true
	}
	w.arrive(r)
	if r.arrived && p.Opcode().Is(wire.OpAnswered) {
		w.open++
		if a := w.flow.Agreed; a != nil && w.open > max(1, a.Depth) {
			return broken(p, Depth, "%d are, agreed was %d", w.open, a.Depth)
		}
	}
	return none()
}

// served refuses a packet of another service than that of the queue pair.
func (w *walker) served(p *flows.Packet) (Violation, bool) {
	if own := w.service; own != nil && p.Opcode().Service() != own.Opcode().Service() {
		return broken(p, Service, "%v, #%d is %v", p.Opcode(), own.Number, own.Opcode())
	}
	return none()
}

// serving returns the packet that says of which service a queue pair is: the first answer, for a responder knows its own
// service, or else the first request.
func serving(list []*flows.Packet) (first *flows.Packet) {
	for _, p := range list {
		switch {
		case p.Verdict == dump.BadICRC:
		case p.IsAnswer():
			return p
		case first == nil:
			first = p
		}
	}
	return first
}

// arrive notes that r can have arrived.
func (w *walker) arrive(r *request) {
	if !r.arrived {
		return
	}
	w.reached = max(w.reached, r.end())
	for w.whole < len(w.reqs) {
		next := w.reqs[w.whole]
		want := 0
		if w.whole > 0 {
			want = w.reqs[w.whole-1].end()
		}
		if !next.arrived || next.at != want {
			return
		}
		n := w.messages[w.whole]
		if next.p.Opcode().Is(wire.OpLast | wire.OpOnly) {
			n++
		}
		w.messages = append(w.messages[:w.whole+1], n)
		w.whole++
	}
}

// again handles a copy of r.
func (w *walker) again(r *request, p *flows.Packet) (Violation, bool) {
	switch {
	case p.Opcode().Service() == wire.ServiceUC && !w.touched:
		return broken(p, Unreliable, "#%d had it", r.p.Number)
	case len(p.Comments) == 0 && len(r.p.Comments) == 0 && !p.SameRequest(r.p):
		return broken(p, Copy, "#%d, with the same PSN, is another", r.p.Number)
	}
	if arrives(p) {
		if r.arrived {
			w.copies += r.n
		}
		r.arrived = true
		w.arrive(r)
	}
	return none()
}

// part handles a request with a PSN of the answers to the READ r.
func (w *walker) part(r *request, p *flows.Packet, at int) (Violation, bool) {
	if p.Opcode().Plain() != wire.RCReadRequest {
		return broken(p, PSN, "it is that of an answer to the READ #%d", r.p.Number)
	}
	done := uint32((at - r.at) * w.mtu()) //nolint:gosec // less than the READ's length
	x, y := &p.Header.RETH, &r.p.Header.RETH
	if x.RKey != y.RKey || x.VA != y.VA+uint64(done) || x.Length != y.Length-done {
		return broken(p, Part, "the rest of #%d is %d bytes at %#x", r.p.Number, y.Length-done, y.VA+uint64(done))
	}
	if arrives(p) {
		if !slices.Contains(r.parts, at) {
			r.parts = append(r.parts[max(0, len(r.parts)-maxParts+1):], at)
		}
		w.copies += r.end() - at
		r.arrived = true
		w.arrive(r)
	}
	return none()
}

// mtu returns the path MTU, or the largest if the capture does not show it.
func (w *walker) mtu() int {
	if w.flow.MTU == 0 {
		return maxMTU
	}
	return w.flow.MTU
}

// payload holds the length of the packet's payload against the path MTU.
func payload(p *flows.Packet, mtu int) (Violation, bool) {
	op, n := p.Opcode(), p.Length
	if mtu == 0 {
		mtu = maxMTU
	}
	switch {
	case !op.Is(wire.OpPayload):
	case op.Is(wire.OpFirst|wire.OpMiddle) && (n != mtu || n < 256 || n > maxMTU || n&(n-1) != 0):
		return broken(p, MTU, "%v has %d bytes, the path MTU is %d", op, n, mtu)
	case n > mtu:
		return broken(p, MTU, "%v has %d bytes, the path MTU is %d", op, n, mtu)
	case op.Is(wire.OpLast) && n == 0:
		return broken(p, MTU, "%v is empty", op)
	}
	return none()
}
