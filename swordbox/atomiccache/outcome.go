package atomiccache

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Answered reports that the server has executed an operation. orig is the original value in the
// response to an atomic; for other operations it is not used.
func (w *Word) Answered(now clock.Time, d Decision, orig uint64) {
	if d.Kind == Client {
		if d.op != 0 && d.serial > w.serial { // otherwise the Word now describes another address
			w.prove(d.rkey)
		}
		w.clientEnded(now, d)
		return
	}
	w.sharedEnded(d)
	w.heard = now
	last := d.Epoch == w.Epoch && d.seq == w.lastSeq
	if d.Kind == Shared && d.op != 0 && last && w.State == Unknown && !w.Literal {
		w.Value = result(d.op, d.compare, d.operand, orig)
		w.follow(now, evAnswered)
	}
}

// Undone reports that the server has not executed an operation and will not execute it. On the
// shared connection it is also called for an operation of which this is unknown because the
// connection has failed. Decisions for later operations on the word there may then be wrong: the
// caller ends them with Undone, too, and asks again for the requests that are still to be sent.
// Undone must not be called for an operation on a client's connection that may still reach the
// server: that operation counts until no NIC would retransmit it (Config.Budget).
func (w *Word) Undone(now clock.Time, d Decision) {
	switch d.Kind {
	case Wait:
	case Client:
		w.clientEnded(now, d)
	default:
		w.sharedEnded(d)
		if d.Epoch == w.Epoch {
			w.Forget()
		}
	}
}

// Refused reports that the server refused an operation with a fatal NAK. If the switch had sent an
// atomic as a WRITE, the server may refuse only the WRITE: from then on the word is Literal, and
// the caller asks again for this operation and for those after it. Otherwise the R_Key is no longer
// proven.
func (w *Word) Refused(now clock.Time, d Decision) {
	switch d.Kind {
	case Write, EmptyWrite:
		w.Literal = true
		w.Forget()
	case Shared:
		if w.proven.rkey == d.rkey {
			w.proven.ok = false
		}
	case Client, Wait:
	}
	w.Undone(now, d)
}

// Forget records that the value of the word is not known any more.
func (w *Word) Forget() {
	w.Epoch++
	w.follow(0, evForget)
}

// Reset puts the word back to Pass without a proven R_Key. It is called when the server has
// restarted. Operations in flight count until Answered, Undone or Refused ends them.
func (w *Word) Reset(now clock.Time) {
	w.Epoch++
	w.proven.ok, w.Literal = false, false
	w.born = now
	w.follow(now, evReset)
}

// Idle reports whether no operation on the word is in flight, and the word is not Busy: in that state
// the caller holds requests for which it must ask the word again.
func (w *Word) Idle() bool {
	return w.Pending == 0 && w.client.pending() == 0 && w.State != Busy
}

// ClientPending is the number of operations in flight on clients' connections that may still reach
// the server.
func (w *Word) ClientPending() int { return int(w.client.pending()) }

// sharedEnded removes an operation on the shared connection from the counts of those in flight.
func (w *Word) sharedEnded(d Decision) {
	if d.Kind == Wait || w.Pending == 0 {
		return
	}
	if d.Kind != EmptyWrite {
		w.changes--
	}
	if w.Pending--; w.Pending == 0 && (w.State == Closing || w.State == Unknown) {
		w.tell()
	}
}

// Counts reports whether the word still counts the operation of d among those in flight on clients'
// connections.
func (w *Word) Counts(now clock.Time, d Decision) bool {
	w.client.age(w.t.interval(now))
	return d.Kind == Client && d.serial > w.serial && w.client.counts(d.window)
}

// IsRecent reports whether a decision was made in the present interval of length Config.Budget. A
// word that counts its operation then does so for at least another Config.Budget.
func (t *Table) IsRecent(now clock.Time, d Decision) bool { return d.window == t.interval(now) }

// clientEnded removes an operation on a client's connection from the counts of those in flight. An
// operation that is older than the word was never counted.
func (w *Word) clientEnded(now clock.Time, d Decision) {
	if d.serial > w.serial {
		w.client.end(d.window)
	}
	w.look(now)
}

// Proven reports whether rkey is the R_Key under which an atomic on the word succeeded last. A word
// has at most one proven R_Key: the same address under two R_Keys may be one word, or two (with
// regions whose addresses begin at 0). Operations under other R_Keys travel on clients'
// connections, which is correct in both cases.
func (w *Word) Proven(rkey uint32) bool { return w.proven == provenKey{rkey, true} }

// prove records that an atomic under an R_Key has succeeded.
func (w *Word) prove(rkey uint32) {
	if w.proven.ok && w.proven.rkey != rkey {
		w.Forget()
	}
	w.proven = provenKey{rkey, true}
}
