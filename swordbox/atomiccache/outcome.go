package atomiccache

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/transform"
)

// Answered is called when the server has executed the operation of d. For an atomic, orig is the
// original value in the response; for other operations it is not used.
func (w *Word) Answered(now clock.Time, d Decision, orig uint64) {
	if d.Kind == Client {
		if d.op != 0 && d.serial > w.serial { // a d with a lower serial was made while w was another word
			w.prove(d.rkey)
		}
		w.clientEnded(now, d)
		return
	}
	w.sharedEnded(d)
	w.heard = now
	last := d.Epoch == w.Epoch && d.seq == w.lastSeq
	if d.Kind == Shared && d.op != 0 && last && w.State == Unknown && !w.Literal {
		w.Value = transform.Result(d.op, d.compare, d.operand, orig)
		w.follow(now, evAnswered)
	}
}

// Undone is called when the server has not executed the operation of d and will not execute it. On
// the shared connection it is also called if the connection has failed and it is not known whether
// the server has executed the operation. Then the decisions about later operations on the word on
// that connection may be wrong. The caller ends these with Undone, too, and asks the word for new
// decisions about those of the operations that it has still to send. Undone must not be called for
// an operation on a client's connection that may still reach the server: the word counts that
// operation until no NIC would retransmit it (Config.Budget).
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

// Refused is called when the server has refused the operation of d with a fatal NAK. If the switch
// sent an atomic as a WRITE, the server may have refused it as a WRITE, and execute the atomic
// itself. So the word becomes Literal, and the caller asks for another decision on this operation
// and on the later ones. If the switch sent the operation unchanged on the shared connection, the
// R_Key is no longer proven.
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

// Forget records that the value of the word is no longer known.
func (w *Word) Forget() {
	w.Epoch++
	w.follow(0, evForget)
}

// Reset puts the word back to Pass without a proven R_Key. It is called when the switch can no
// longer rely on what it knows of the word. That is so if no rule selects the word any more, or if
// the outcome of an operation is not known, so that the server may have restarted. Reset leaves the
// counts of operations in flight as they are.
func (w *Word) Reset(now clock.Time) {
	w.Epoch++
	w.proven.ok, w.Literal = false, false
	w.born = now
	w.follow(now, evReset)
}

// Idle reports whether the table may evict the word: no operation on it is in flight, and it is not
// Busy. While the word is Busy, the caller holds requests whose decision was Wait, and must ask the
// word for another decision about each of them.
func (w *Word) Idle() bool {
	return w.Pending == 0 && w.client.pending() == 0 && w.State != Busy
}

// ClientPending returns the number of operations in flight on clients' connections that may still
// reach the server.
func (w *Word) ClientPending() int { return int(w.client.pending()) }

// sharedEnded counts an operation on the shared connection as no longer in flight.
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

// Counts reports whether the word still counts the operation of d as in flight on a client's
// connection.
func (w *Word) Counts(now clock.Time, d Decision) bool {
	w.client.age(w.t.interval(now))
	return d.Kind == Client && d.serial > w.serial && w.client.counts(d.window)
}

// IsRecent reports whether d was made in the present interval, which is Config.Budget long. If so,
// a word that counts the operation of d as in flight still counts it for at least one more
// Config.Budget.
func (t *Table) IsRecent(now clock.Time, d Decision) bool { return d.window == t.interval(now) }

// clientEnded counts an operation on a client's connection as no longer in flight. If the operation
// is older than the word in the table, the word never counted it, and nothing changes.
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

// prove records that an atomic under rkey has succeeded. If another R_Key was proven before, the
// value of the word becomes unknown.
func (w *Word) prove(rkey uint32) {
	if w.proven.ok && w.proven.rkey != rkey {
		w.Forget()
	}
	w.proven = provenKey{rkey, true}
}
