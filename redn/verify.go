package redn

import (
	"fmt"
	"math"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/sendring"
)

// verifiedLaps is how many laps of a loop Verify executes. A count that the loop does not raise
// makes the second or third lap hang.
const verifiedLaps = 3

// Verify returns an error if the requests of the queues would hang or overrun a ring. It simulates
// them as they were built, and assumes that each signalled request completes. It ignores changes of
// requests by other requests, except that a Loop raises its counts. Of a loop it simulates the
// first laps. external has the number of completions from outside, such as receives, for each
// counter.
func Verify(external map[*Counter]uint32, queues ...*Queue) error {
	v := verifier{at: make(map[*Queue]*place), count: make(map[*Counter]uint32), counts: make(map[*Request]*counts)}
	for _, q := range queues {
		if err := v.add(q); err != nil {
			return err
		}
	}
	for c, n := range external {
		v.count[c] += n
	}
	for moved := true; moved; {
		moved = false
		for _, q := range queues {
			for v.ready(v.at[q]) {
				if err := v.step(v.at[q]); err != nil {
					return err
				}
				moved = true
			}
			if err := v.overflows(v.at[q]); err != nil {
				return err
			}
		}
	}
	var stuck []string
	for _, q := range queues {
		if p := v.at[q]; !p.done() {
			stuck = append(stuck, v.why(p))
		}
	}
	if len(stuck) > 0 {
		return fmt.Errorf("the program hangs: %s", strings.Join(stuck, "; "))
	}
	return nil
}

// verifier simulates a program: only the order of its requests and their counts.
type verifier struct {
	at     map[*Queue]*place
	count  map[*Counter]uint32  // how many completions each counter has counted
	counts map[*Request]*counts // of each WAIT, ENABLE and RECV_ENABLE
}

// place is how far a queue has come in the simulation.
type place struct {
	*Queue
	next int // index in requests of the next request
	lap  int // for a loop: number of the present lap, from 0
	// limit is the index of the first block that may not be executed.
	limit uint32
}

// counts are the present count of a WAIT, ENABLE or RECV_ENABLE and, in a loop, its shadow: the
// count for the next lap, which a READ of the loop copies into the request.
type counts struct {
	now, shadow uint32
	used        uint32 // the count with which the request was executed last
}

// add checks the requests of a queue, and places the queue at its first request.
func (v *verifier) add(q *Queue) error {
	if n := int(q.next - q.first); n > q.blocks() {
		return fmt.Errorf("queue %s: %d blocks do not fit into a ring of %d", q.Name, n, q.blocks())
	}
	p := &place{Queue: q, limit: q.next}
	if q.Managed {
		p.limit = q.first
	}
	v.at[q] = p
	v.count[q.Done] = q.began
	for _, r := range q.requests {
		if n := r.entry.Len() / sendring.BlockSize; n > 1 && q.OneBlock && !r.pad {
			return fmt.Errorf("queue %s, index %d: %v of %d blocks; the queue's requests have one", q.Name, r.index, r.entry.Op, n)
		}
		if r.counts() {
			v.counts[r] = &counts{now: r.entry.Count, shadow: r.entry.Count}
		}
	}
	if q.loop != nil && q == q.loop.q {
		for i, r := range q.loop.counted {
			v.counts[r].shadow += q.loop.by[i]
		}
	}
	return nil
}

// done reports whether the queue has executed all requests, or enough laps of a loop.
func (p *place) done() bool {
	switch {
	case p.loop == nil || len(p.requests) == 0:
		return p.next == len(p.requests)
	case p.Queue == p.loop.q:
		return p.lap >= verifiedLaps
	default: // another queue of a loop need not execute the NOPs that fill its ring
		return p.lap > 0 || p.next > 0
	}
}

// index returns the absolute index of the next request.
func (p *place) index() uint32 {
	if p.next == len(p.requests) {
		return p.Queue.next
	}
	return p.requests[p.next].index + uint32(p.lap*p.blocks())
}

func (v *verifier) ready(p *place) bool {
	if p.next == len(p.requests) || p.lap >= verifiedLaps || int32(p.limit-p.index()) <= 0 {
		return false
	}
	r := p.requests[p.next]
	return r.waits == nil || int32(v.count[r.waits]-v.counts[r].now) >= 0
}

// step simulates the next request of the queue at p: what it does to counts, limits and completions.
func (v *verifier) step(p *place) error {
	r := p.requests[p.next]
	if index, n := p.index(), uint32(r.entry.Len()/sendring.BlockSize); int32(p.limit-index) < int32(n) {
		return fmt.Errorf("queue %s is enabled up to index %d, inside of the request at %d, which has %d blocks", p.Name, p.limit, index, n)
	}
	if c := v.counts[r]; c != nil {
		if p.lap > 0 && c.now == c.used && !r.held {
			return fmt.Errorf("queue %s, index %d: lap %d hangs or overtakes: no ADD has raised the count %d of the %v", p.Name, r.index, p.lap+1, c.now, r.entry.Op)
		}
		c.used = c.now
	}
	if r.to != nil {
		if err := v.enable(r); err != nil {
			return err
		}
	}
	for _, f := range r.fixes {
		if c := v.counts[f.to]; r.entry.Op == sendring.Read {
			c.now = c.shadow
		} else {
			c.shadow += f.by
		}
	}
	if r.entry.Flags&sendring.Signalled != 0 {
		v.count[p.Done]++
	}
	if p.next++; p.next == len(p.requests) && p.loop != nil {
		p.next, p.lap = 0, p.lap+1
	}
	return nil
}

func (v *verifier) enable(r *Request) error {
	to, count := v.at[r.to], v.counts[r].now
	if to == nil {
		return nil // the ENABLE is for a queue that is not verified
	}
	if ahead := int64(int32(count - to.index())); ahead > to.Queue.farthest() {
		return fmt.Errorf("queue %s, index %d: ENABLE of %d blocks of queue %s; its counts overflow behind %d",
			r.queue.Name, r.index, ahead, to.Name, to.Queue.farthest())
	}
	if int32(count-to.limit) > 0 {
		to.limit = count
	}
	return nil
}

// overflows returns an error if a queue waits for a count that is too far ahead: the ring would
// take it for a count of the past.
func (v *verifier) overflows(p *place) error {
	if p.done() || int32(p.limit-p.index()) <= 0 || p.requests[p.next].waits == nil {
		return nil
	}
	r := p.requests[p.next]
	if ahead := int64(int32(v.counts[r].now - v.count[r.waits])); ahead > p.Queue.farthest() {
		return fmt.Errorf("queue %s, index %d: WAIT for %d more completions; its counts overflow behind %d", p.Name, r.index, ahead, p.Queue.farthest())
	}
	return nil
}

// farthest returns by how much the count of a WAIT may be ahead of the completions for which it
// waits, and by how much the count of an ENABLE may be ahead of the index that queue q has reached.
// Beyond that, the ring takes the count for one of the past.
func (q *Queue) farthest() int64 {
	if q.Counts16 {
		return math.MaxInt16
	}
	return math.MaxInt32
}

// why returns a text for an error: which completion or ENABLE the next request of a queue waits
// for.
func (v *verifier) why(p *place) string {
	if index := p.index(); int32(p.limit-index) <= 0 {
		if p.lap > 0 {
			return fmt.Sprintf("queue %s is not enabled for lap %d, from index %d on", p.Name, p.lap+1, index)
		}
		return fmt.Sprintf("queue %s is never enabled from index %d on", p.Name, index)
	}
	r := p.requests[p.next]
	return fmt.Sprintf("queue %s, index %d: WAIT for %d completions of queue %d, which gets %d",
		p.Name, p.index(), v.counts[r].now, r.waits.Number, v.count[r.waits])
}
