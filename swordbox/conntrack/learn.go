package conntrack

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Learning from packets. A request names the responder's queue pair, a response the requester's, and nothing on the wire
// says which two belong together. What the switch can say for sure is which do not: a response to a PSN that was not
// asked for on a row, or of another kind than the request had, is not that row's. So every unpaired direction that carries
// responses crosses out the directions towards it whose requests do not fit. It is paired with the only one that is left,
// when that one has fitted several times.
//
// This never errs as long as all packets between the two hosts cross this switch. Three cases are left out of it. A row
// that the switch may have missed packets of (at its own start, or because there was no room) is not crossed out before
// it is settled. Two directions that claim the same one start over, for one of them must be wrong. Rows that stay in
// lockstep, with the same PSNs, kinds and times, are told apart by nothing, and are not paired until they fall out of it.
//
// A host can forge responses in its own name. That can mispair its own connections, and nobody else's.

// Bounds of learning.
const (
	// confirm is how many responses to new PSNs must fit the only candidate.
	confirm = 3
	// maxRuns is how many runs of requests are remembered of a row.
	maxRuns = 32
	// longAgo is how many PSNs back a request may be that is still answered.
	longAgo = 1 << 22
)

// kind is what a run of requests asks for.
type kind uint8

const (
	plain kind = iota // SEND or WRITE, answered by an ACK
	read
	atomic
)

// run is requests of one kind in a row: a READ, an atomic, or any number of packets of SENDs and WRITEs.
type run struct {
	psn  wire.PSN
	span int32
	kind kind
}

// learning is what is remembered of a row whose peer is not known.
type learning struct {
	slot uint32
	// runs are the newest requests, next is where the next one goes. end is the PSN after the last.
	runs [maxRuns]run
	n    int
	next int
	end  wire.PSN
	// low is the lowest PSN that was asked, or one further back than answers can be.
	low   wire.PSN
	until clock.Time // not settled before
	// out are the slots of rows that the row's responses do not answer.
	out []uint64
	any bool // out is not empty
	// fits is the only candidate, how often it fitted, and the last PSN that it did. claim is who says so of this row.
	fits  *Row
	votes int
	vote  wire.PSN
	claim *Row
}

// crowd is the learning rows between two hosts in one direction.
type crowd struct {
	rows   []*Row
	newest clock.Time // when the last one began
}

// budget bounds the work of learning: so many comparisons a second, with a burst.
type budget struct {
	left int
	at   clock.Time
}

const (
	budgetBurst = 1 << 20
	// budgetEach is the time that earns one comparison.
	budgetEach = 200 * time.Nanosecond
)

// open reports whether there is something to spend.
func (b *budget) open(now clock.Time) bool {
	if earned := now.Sub(b.at) / budgetEach; earned > 0 {
		b.left = int(min(int64(b.left)+int64(earned), budgetBurst))
		b.at = b.at.Add(earned * budgetEach)
	}
	return b.left > 0
}

// roomToLearn makes sure that h may have one more learning row.
func (t *Table) roomToLearn(now clock.Time, h *host) bool {
	switch {
	case h.learning.n >= max(1, t.cfg.Learning/2):
		t.evict(now, h.learning.head)
	case len(t.unused) == 0 && len(t.slots) >= t.cfg.Learning:
		v := h
		if h.learning.n == 0 {
			v = t.crowder()
		}
		t.evict(now, v.learning.head)
	}
	return true
}

// startLearning gives a row what it needs to find its peer.
func (t *Table) startLearning(now clock.Time, r *Row) {
	var l *learning
	if n := len(t.unused); n != 0 {
		l = t.slots[t.unused[n-1]]
		t.unused = t.unused[:n-1]
		clear(l.out)
		*l = learning{slot: l.slot, out: l.out}
	} else {
		l = &learning{slot: uint32(len(t.slots)), out: make([]uint64, (t.cfg.Learning+63)/64)}
		t.slots = append(t.slots, l)
	}
	r.learn = l
	settle := t.cfg.Settle
	if settle > 0 && now < t.start.Add(settle) || r.host.anyLost && now < r.host.lost.Add(max(settle, t.cfg.Quarantine)) {
		l.until, r.Middle = now.Add(max(settle, t.cfg.Quarantine)), true
	}
	r.host.learning.push(r)
	c := t.pairs[r.key.ends]
	if c == nil {
		c = new(crowd)
		t.pairs[r.key.ends] = c
	}
	c.rows, c.newest = append(c.rows, r), now
}

// stopLearning takes it back.
func (t *Table) stopLearning(r *Row) {
	l := r.learn
	if l == nil {
		return
	}
	r.learn = nil
	r.host.learning.remove(r)
	c := t.pairs[r.key.ends]
	for i, other := range c.rows {
		if other == r {
			last := len(c.rows) - 1
			c.rows[i], c.rows[last] = c.rows[last], nil
			c.rows = c.rows[:last]
			break
		}
	}
	if len(c.rows) == 0 {
		delete(t.pairs, r.key.ends)
	}
	if back := t.pairs[r.key.back()]; back != nil {
		for _, u := range back.rows {
			u.learn.forget(r, l)
		}
	}
	t.unused = append(t.unused, l.slot)
}

// forget takes a row that is no longer learning out of what was concluded about it.
func (l *learning) forget(r *Row, was *learning) {
	l.out[was.slot/64] &^= 1 << (was.slot % 64)
	if l.fits == r {
		l.fits, l.votes = nil, 0
	}
	if l.claim == r {
		l.claim = nil
	}
}

// settled reports whether a PSN that was not seen on a row was not sent.
func (t *Table) settled(now clock.Time, r *Row) bool { return now >= r.until }

// asks notes a request of a learning row.
func (t *Table) asks(r *Row, f *wire.Frame, span int) {
	l, psn, k := r.learn, f.BTH.PSN, plain
	switch {
	case f.BTH.Opcode == wire.RCReadRequest:
		k = read
	case f.BTH.Opcode.Is(wire.OpAtomic):
		k = atomic
	}
	if d := wire.Diff(psn, l.low); l.n == 0 || d < 0 {
		l.low = psn
	} else if d > longAgo {
		l.low = psn.Add(-longAgo)
	}
	if l.n != 0 && wire.Diff(psn, l.end) < 0 {
		d := wire.Diff(psn, l.newest().psn)
		if l.newest().kind != read || d <= 0 {
			return // it came before
		}
		l.newest().span = d // the READ took less than it could have
	}
	width := r.atMost(span, f.RETH.Length)
	if last := l.newest(); l.n != 0 && k == plain && last.kind == plain && psn == l.end {
		last.span += int32(width)
	} else {
		l.runs[l.next] = run{psn, int32(width), k}
		l.next = (l.next + 1) % maxRuns
		l.n = min(l.n+1, maxRuns)
	}
	l.end = psn.Add(width)
}

// newest is the run that was added last.
func (l *learning) newest() *run { return &l.runs[(l.next+maxRuns-1)%maxRuns] }

// match is what a response says about a row.
type match uint8

const (
	possible match = iota // too old to say, or a NAK
	fitting
	impossible
)

// compare says whether a response may answer a request of the row.
func (l *learning) compare(f *wire.Frame) match {
	psn, op := f.BTH.PSN, f.BTH.Opcode
	if wire.Diff(psn, l.end) >= 0 {
		return impossible
	}
	if op == wire.RCAck && !f.AETH.Syndrome.IsAck() {
		return possible
	}
	for i := range l.n {
		q := &l.runs[(l.next+maxRuns-1-i)%maxRuns]
		d := wire.Diff(psn, q.psn)
		if d < 0 {
			continue
		}
		if d >= q.span {
			return possible // a request that the switch did not see, lost on its way or older than the row
		}
		if q.kind == kindOf(op) {
			return fitting
		}
		return impossible
	}
	if wire.Diff(psn, l.low) < 0 {
		return impossible // a row that died without an answer must not stand in the way of all others
	}
	return possible
}

// kindOf is what a response answers.
func kindOf(op wire.Opcode) kind {
	switch {
	case op.Is(wire.OpRead):
		return read
	case op.Is(wire.OpAtomic):
		return atomic
	}
	return plain
}

// answers learns from a response on a row whose peer is not known.
func (t *Table) answers(now clock.Time, u *Row, f *wire.Frame) {
	c := t.pairs[u.key.back()]
	if c == nil {
		return
	}
	if !t.budget.open(now) {
		t.stats.Unhurried++
		return
	}
	l := u.learn
	var only *Row
	var how match
	left := 0
	for _, d := range c.rows {
		o := d.learn
		if o.n == 0 || l.out[o.slot/64]>>(o.slot%64)&1 != 0 {
			continue
		}
		t.budget.left--
		m := o.compare(f)
		if m == impossible {
			if now >= o.until {
				l.out[o.slot/64] |= 1 << (o.slot % 64)
				l.any = true
				continue
			}
			m = possible
		}
		left++
		only, how = d, m
	}
	switch {
	case left == 0 && l.any:
		t.stats.Contradicted++
		l.restart()
	case left == 1 && how == fitting:
		t.vote(u, only, f.BTH.PSN)
	case left > 1:
		l.fits, l.votes = nil, 0
	}
}

// restart takes back every conclusion of a row.
func (l *learning) restart() {
	clear(l.out)
	l.any, l.fits, l.votes = false, nil, 0
}

// vote notes that d is the only row whose requests u can answer, and pairs the two when that was seen often enough.
func (t *Table) vote(u, d *Row, psn wire.PSN) {
	l := u.learn
	if l.fits != d {
		l.fits, l.votes, l.vote = d, 1, psn
	} else if wire.Diff(psn, l.vote) > 0 {
		l.votes++
		l.vote = psn
	}
	if other := d.learn.claim; other != nil && other != u && other.learn != nil && other.learn.fits == d {
		t.stats.Contested++
		l.restart()
		other.learn.restart()
		d.learn.claim = nil
		return
	}
	d.learn.claim = u
	if l.votes < confirm {
		return
	}
	t.stats.Paired++
	until := max(d.learn.until, l.until)
	t.pair(d, u)
	d.until, u.until = until, until
}
