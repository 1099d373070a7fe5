package conntrack

import (
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Learning from packets. A request names the responder's queue pair, and a response names the
// requester's. No packet says which two queue pairs belong together. Packets can only prove that
// two flows are not peers: a response does not answer a flow if its PSN was not requested there, or
// if the request had another kind. So the responses of each flow without a peer exclude those flows
// of the opposite direction whose requests they cannot answer. When only one flow is left, and its
// requests have matched several responses, the table pairs the two.
//
// The result is right as long as all packets between the two hosts cross this switch. Three cases
// are special. First, the switch may have missed packets of a flow, at its start or for lack of
// room; such a flow is not excluded before it is settled (entry.settled). Second, two flows may
// claim the same peer; both start over, because one of them must be wrong. Third, connections may
// run in lockstep, with the same PSNs, kinds and times; they are not paired while that lasts.
//
// A host can forge responses with its own address. That can pair its own flows wrongly, but no flow
// of another host.

// confirm is how many responses must match the only flow that can still be the peer, before the
// table pairs the two flows. Each response must have a higher PSN than the one before.
const confirm = 3

// learner finds out from packets which two flows are the two directions of one connection. It holds
// the flows whose peer is not known yet.
type learner struct {
	max    int // the largest number of learning flows
	slots  []*learning
	unused []uint32 // slots that no flow uses
	pairs  map[addrPair]*crowd
	budget budget
	stats  *Stats
}

func newLearner(max int, stats *Stats) learner {
	return learner{max: max, pairs: make(map[addrPair]*crowd), budget: budget{left: budgetBurst}, stats: stats}
}

// crowd holds the learning flows from one host to another.
type crowd struct {
	flows  []*Flow
	newest clock.Time // when the newest of these flows began
}

// budget limits the work of learning: it allows comparisons at a fixed rate, and a burst of them.
type budget struct {
	left int        // how many comparisons are allowed
	at   clock.Time // the time up to which left has grown
}

const (
	// budgetBurst is the largest value of budget.left.
	budgetBurst = 1 << 20
	// budgetEach is the interval at which the budget grows by one comparison.
	budgetEach = 200 * time.Nanosecond
)

// open reports whether the budget allows comparisons now.
func (b *budget) open(now clock.Time) bool {
	if earned := now.Sub(b.at) / budgetEach; earned > 0 {
		b.left = int(min(int64(b.left)+int64(earned), budgetBurst))
		b.at = b.at.Add(earned * budgetEach)
	}
	return b.left > 0
}

func (t *learner) inUse() int { return len(t.slots) - len(t.unused) }

// full reports whether a flow must be evicted before another one can learn.
func (t *learner) full() bool { return len(t.unused) == 0 && len(t.slots) >= t.max }

// start begins the search for the peer of a flow, the flow in the opposite direction of the same
// connection. until is the time from which the flow is settled (entry.settled); 0 means at once.
func (t *learner) start(now clock.Time, fl *Flow, until clock.Time) {
	var l *learning
	if n := len(t.unused); n != 0 {
		l = t.slots[t.unused[n-1]]
		t.unused = t.unused[:n-1]
		clear(l.out)
		*l = learning{slot: l.slot, out: l.out}
	} else {
		l = &learning{slot: uint32(len(t.slots)), out: make([]uint64, (t.max+63)/64)}
		t.slots = append(t.slots, l)
	}
	l.until = until
	fl.learn = l
	fl.host.learning.push(fl)
	c := t.pairs[fl.key.addrPair]
	if c == nil {
		c = new(crowd)
		t.pairs[fl.key.addrPair] = c
	}
	c.flows, c.newest = append(c.flows, fl), now
}

// stop ends the search for the peer of flow fl. Other learning flows drop what they have concluded
// about fl.
func (t *learner) stop(fl *Flow) {
	l := fl.learn
	if l == nil {
		return
	}
	fl.learn = nil
	fl.host.learning.remove(fl)
	c := t.pairs[fl.key.addrPair]
	i, last := slices.Index(c.flows, fl), len(c.flows)-1
	c.flows[i], c.flows[last] = c.flows[last], nil
	c.flows = c.flows[:last]
	if len(c.flows) == 0 {
		delete(t.pairs, fl.key.addrPair)
	}
	if back := t.pairs[fl.key.back()]; back != nil {
		for _, u := range back.flows {
			u.learn.forget(fl, l)
		}
	}
	t.unused = append(t.unused, l.slot)
}

// response learns from a response in the direction of u, whose peer is not known. It returns the
// peer when enough responses have shown it, and nil until then.
func (t *learner) response(now clock.Time, u *Flow, f *wire.Frame) *Flow {
	c := t.pairs[u.key.back()]
	if c == nil {
		return nil
	}
	if !t.budget.open(now) {
		t.stats.Unhurried++
		return nil
	}
	l := u.learn
	var only *Flow
	var how match
	left := 0
	for _, d := range c.flows {
		o := d.learn
		if o.n == 0 || l.excludes(o) {
			continue
		}
		t.budget.left--
		m := o.compare(f)
		if m == impossible && now >= o.until {
			l.exclude(o)
			continue
		}
		left++
		only, how = d, m
	}
	switch {
	case left == 0 && l.any:
		t.stats.Contradicted++
		l.restart()
	case left == 1 && how == matching:
		return t.vote(u, only, f.BTH.PSN)
	case left > 1:
		l.fits, l.votes = nil, 0
	}
	return nil
}

// vote records that d is the only flow that the responses of u can answer. It returns d when enough
// responses have shown this, and nil until then.
func (t *learner) vote(u, d *Flow, psn wire.PSN) *Flow {
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
		return nil
	}
	d.learn.claim = u
	if l.votes < confirm {
		return nil
	}
	t.stats.Paired++
	until := max(d.learn.until, l.until)
	d.until, u.until = until, until
	return d
}

// A host that restarts gives its queue pairs the same QPNs as before. If QPNs are exchanged without
// the connection manager, the switch sees no handshake of the new connection. Requests of the new
// connection name another queue pair of the server, so they make a flow of their own. But the
// responses of the new connection name the same queue pair as those of the old one. If the switch
// applied the PSN shift of the old connection to an ACK of the new one, the ACK would acknowledge
// other requests than the server meant.

// maxTransit is longer than a packet is in transit in a rack.
const maxTransit = time.Millisecond

// doubtful reports whether a response to the pinned flow fl may belong to a newer connection
// between the same two hosts. It may if the newer connection has requests that the response may
// answer, and the requester of fl has been silent since the newer connection began. A live
// requester sends again, at the latest after its timeout, which ends the doubt; the responder then
// repeats the response.
func (t *learner) doubtful(fl *Flow, f *wire.Frame) bool {
	c := t.pairs[fl.key.addrPair]
	if c == nil || fl.Last > c.newest.Add(maxTransit) {
		return false // fl has sent since the newest flow began, so no flow needs to be compared
	}
	for _, d := range c.flows {
		if d.Since > fl.Since && d.learn.n != 0 && fl.Last <= d.Since.Add(maxTransit) && d.learn.compare(f) != impossible {
			return true
		}
	}
	return false
}
