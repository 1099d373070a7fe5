package words

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Answered ends an operation that the server has executed. orig is what the server said that an atomic found; it
// means nothing for the others.
func (w *Word) Answered(now clock.Time, d Decision, orig uint64) {
	if d.Kind == Own {
		if d.op != 0 && d.serial > w.serial { // else this is another word by now
			w.prove(d.rkey)
		}
		w.ownEnded(now, d)
		return
	}
	w.sharedEnded(d)
	w.heard = now
	if d.Kind == Shared && d.op != 0 && d.Epoch == w.Epoch && d.seq == w.lastSeq && w.State == Unknown && !w.Literal {
		w.Value = result(d.op, d.compare, d.operand, orig)
		w.follow(now, evAnswered)
	}
}

// Undone ends an operation that the server has not executed and will not execute. On the shared connection it also
// ends one of which nothing is known because the connection is gone; what of the word's operations follows it there has
// been decided on a ground that may be wrong: end it with Undone, too, and ask anew if the request still wants to be
// sent. An operation on an own connection that may still reach the server is not to be ended: it counts until no NIC
// would send it again (Config.Budget).
func (w *Word) Undone(now clock.Time, d Decision) {
	switch d.Kind {
	case Wait:
	case Own:
		w.ownEnded(now, d)
	default:
		w.sharedEnded(d)
		if d.Epoch == w.Epoch {
			w.Forget()
		}
	}
}

// Refused ends an operation that the server refused with a fatal NAK. If it was an atomic sent as a WRITE, perhaps only
// the WRITE was refused: the word is Literal from then on, and the operation should be asked about anew, like those
// behind it. Otherwise the key is not to be trusted any more.
func (w *Word) Refused(now clock.Time, d Decision) {
	switch d.Kind {
	case Write, EmptyWrite:
		w.Literal = true
		w.Forget()
	case Shared:
		w.unprove(d.rkey)
	case Own, Wait:
	}
	w.Undone(now, d)
}

// Forget says that the value is not certain any more.
func (w *Word) Forget() {
	w.Epoch++
	w.follow(0, evForget)
}

// Reset takes the word back to Pass, and trusts no key: the server has started anew. Operations that have not been
// ended still count until they are.
func (w *Word) Reset(now clock.Time) {
	w.Epoch++
	w.proven, w.Literal = false, false
	w.born = now
	w.follow(now, evReset)
}

// Idle reports whether no operation is on its way and nobody has to be told of a change.
func (w *Word) Idle() bool {
	return w.Pending == 0 && w.own == [2]uint32{} && w.State != Busy
}

// OwnPending is how many operations on own connections have not been ended and may still reach the server.
func (w *Word) OwnPending() int { return int(w.own[0] + w.own[1]) }

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

// Counts reports whether the word still counts on an operation on an own connection that has not been ended.
func (w *Word) Counts(now clock.Time, d Decision) bool {
	w.age(now)
	return d.Kind == Own && d.serial > w.serial && w.window-d.window <= 1
}

// ownEnded counts an operation off, unless the word is younger or it has aged out.
func (w *Word) ownEnded(now clock.Time, d Decision) {
	if d.serial > w.serial && w.window-d.window <= 1 && w.own[d.window&1] > 0 {
		w.own[d.window&1]--
	}
	w.look(now)
}

// Proven reports whether the key is the one under which an atomic succeeded last. There is one at a time: the same address
// under two keys may be two words, as regions that begin at address 0 have it, or one. Each is right on own connections.
func (w *Word) Proven(rkey uint32) bool { return w.proven && w.key == rkey }

func (w *Word) prove(rkey uint32) {
	if w.proven && w.key != rkey {
		w.Forget()
	}
	w.key, w.proven = rkey, true
}

func (w *Word) unprove(rkey uint32) {
	if w.key == rkey {
		w.proven = false
	}
}
