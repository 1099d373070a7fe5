package sendring

import "github.com/rdmalab/rdmalab/softrnic/verbs"

// flight is an entry that was executed and has not completed.
type flight struct {
	index     uint32
	posted    bool // a work request was posted to the queue pair; otherwise the entry completes when all earlier ones have completed
	read      bool // a READ or atomic, for which a fence waits
	signalled bool
}

// inFlight are the entries in flight, oldest first, in a ring of limited size.
type inFlight struct {
	all   []flight
	head  int
	n     int
	reads int // number of entries with read set
}

func newInFlight(limit int) inFlight { return inFlight{all: make([]flight, limit)} }

func (q *inFlight) full() bool { return q.n == len(q.all) }

func (q *inFlight) add(f flight) {
	q.all[(q.head+q.n)%len(q.all)] = f
	q.n++
	q.reads += flag(f.read)
}

// oldest returns the oldest entry; nil means that none is in flight.
func (q *inFlight) oldest() *flight {
	if q.n == 0 {
		return nil
	}
	return &q.all[q.head]
}

func (q *inFlight) remove() {
	q.reads -= flag(q.all[q.head].read)
	q.head = (q.head + 1) % len(q.all)
	q.n--
}

// Completed is called with each send completion of the queue pair, in order. It returns whether the
// completion must be added to the completion queue. This is not so for a success without the flag
// Signalled.
func (r *Ring) Completed(wc *verbs.WC) (deliver bool) {
	f := r.inFlight.oldest()
	if f == nil || !f.posted {
		return true // not reached: the queue pair completes the work requests of the ring in order
	}
	deliver = f.signalled
	r.inFlight.remove()
	if wc.Status != verbs.Success {
		deliver = true
		r.Stop()
	}
	if r.inFlight.reads == 0 {
		r.state.on(readsDone)
	}
	r.state.on(queueRoom)
	return deliver
}

// NextControl takes the oldest entry in flight if it is a NOP, WAIT, ENABLE or RECV_ENABLE, and
// returns its completion. ok is false if the oldest entry is another one, or if there is none.
// deliver is false if the completion must not be added to the completion queue: the entry was
// executed and is not signalled. The status of wc is Success, or WRFlushErr if the queue pair is no
// longer in a state in which it sends.
func (r *Ring) NextControl() (wc verbs.WC, deliver, ok bool) {
	f := r.inFlight.oldest()
	if f == nil || f.posted {
		return wc, false, false
	}
	wc = verbs.WC{ID: uint64(f.index), Opcode: verbs.WCNop, QPN: r.qpn}
	deliver = f.signalled
	if r.flushes() {
		wc.Status, deliver = verbs.WRFlushErr, true
	}
	r.inFlight.remove()
	r.state.on(queueRoom)
	return wc, deliver, true
}

// flushes reports whether the queue pair is no longer in a state in which it sends.
func (r *Ring) flushes() bool {
	return r.state == Ended || r.state == Failing && r.bad == verbs.WRFlushErr
}

// Failure returns the completion of the entry that has failed. ok is false while entries before it
// have not completed.
func (r *Ring) Failure() (wc verbs.WC, ok bool) {
	if r.state != Failing || r.inFlight.n > 0 {
		return wc, false
	}
	r.state.on(stopped)
	return verbs.WC{ID: uint64(r.next), Status: r.bad, QPN: r.qpn}, true
}
