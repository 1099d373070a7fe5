package atomiccache

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Answered ends an operation that the server has executed. orig is the original value in the
// response to an atomic; it is not used for other operations.
func (w *Word) Answered(now clock.Time, d Decision, orig uint64) {
	if d.Kind == Client {
		if d.op != 0 && d.serial > w.serial { // else the Word is used for another address now
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

// Undone ends an operation that the server has not executed and will not execute. On the shared
// connection it also ends an operation whose fate is not known because the connection has failed.
// Decisions for later operations on the word there may then be wrong: the caller ends them with
// Undone, too, and asks again for the requests that are still to be sent. An operation on a
// client's connection that may still reach the server must not be ended: it counts until no NIC
// would retransmit it (Config.Budget).
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

// Refused ends an operation that the server refused with a fatal NAK. If it was an atomic sent as a
// WRITE, the server may refuse only the WRITE: the word is Literal from then on, and the caller
// should ask again for the operation and for those after it. Otherwise the R_Key is not proven any
// more.
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

// Forget makes the value unknown.
func (w *Word) Forget() {
	w.Epoch++
	w.follow(0, evForget)
}

// Reset puts the word back to Pass without a proven R_Key. It is called when the server has
// restarted. Operations that have not been ended still count until they are.
func (w *Word) Reset(now clock.Time) {
	w.Epoch++
	w.proven.ok, w.Literal = false, false
	w.born = now
	w.follow(now, evReset)
}

// Idle reports whether no operation is in flight and no waiting operation must be asked about
// again.
func (w *Word) Idle() bool {
	return w.Pending == 0 && w.client.pending() == 0 && w.State != Busy
}

// ClientPending is how many operations on clients' connections have not been ended and may still
// reach the server.
func (w *Word) ClientPending() int { return int(w.client.pending()) }

// sharedEnded takes back the count of an operation on the shared connection.
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

// Counts reports whether the word still counts an operation on a client's connection that has not
// been ended.
func (w *Word) Counts(now clock.Time, d Decision) bool {
	w.client.age(w.t.interval(now))
	return d.Kind == Client && d.serial > w.serial && w.client.counts(d.window)
}

// IsRecent reports whether a decision was made in the present interval of Config.Budget: a word that
// counts it does so for Config.Budget at least.
func (t *Table) IsRecent(now clock.Time, d Decision) bool { return d.window == t.interval(now) }

// clientEnded takes back the count of an operation on a client's connection, unless the word was
// created after it.
func (w *Word) clientEnded(now clock.Time, d Decision) {
	if d.serial > w.serial {
		w.client.end(d.window)
	}
	w.look(now)
}

// Proven reports whether an R_Key is the one under which an atomic succeeded last. There is at most
// one: the same address under two R_Keys may be two words, as with regions that begin at address 0,
// or one word. Operations under other R_Keys travel on clients' connections, which is correct for
// each of them.
func (w *Word) Proven(rkey uint32) bool { return w.proven == provenKey{rkey, true} }

// prove notes that an atomic under an R_Key has succeeded.
func (w *Word) prove(rkey uint32) {
	if w.proven.ok && w.proven.rkey != rkey {
		w.Forget()
	}
	w.proven = provenKey{rkey, true}
}
