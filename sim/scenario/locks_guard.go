package scenario

import (
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// guardian is a node around a memory server's NIC that checks the words after every packet. It
// checks mutual exclusion by the memory, not by the clients' answers. The holder of a lock writes
// its stamp (a random number that names the holder) into the guard when it enters, and 0 before it
// releases the lock. So at every instant:
//
//   - the client inside has the lock, and no client enters before the last one has left or died;
//   - a lock changes hands only when no client is inside, and by then the holder's WRITE of the
//     node (the data under the lock) is complete;
//   - a lock has a value that a client has written, byte for byte.
type guardian struct {
	simnet.Node
	server *lockServer
}

func (g *guardian) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	g.Node.Frame(now, port, f, out)
	g.look()
}

// Tick runs the NIC's timers, which complete torn copies, and checks the memory.
func (g *guardian) Tick(now clock.Time, out *packetio.Batch) {
	g.Node.Tick(now, out)
	g.look()
}

func (g *guardian) look() {
	for _, w := range g.server.words {
		if w.mr == nil {
			continue
		}
		word, ok := w.load(wordOff)
		if !ok {
			continue
		}
		guard, ok := w.load(guardOff)
		if !ok || word == w.word && guard == w.guard {
			continue
		}
		if err := g.server.run.changed(w, word, guard); err != nil {
			g.server.run.env.fail("memory of %s: %w", w.name(), err)
		}
		w.word, w.guard = word, guard
	}
}

// changed is called when a word or its guard has changed to the values word and guard. It checks
// the change.
func (r *lockRun) changed(w *lockWord, word, guard uint64) error {
	if w.kind == tagLock || w.kind == bitLock {
		if err := r.judgeLock(w, word, guard); err != nil {
			return fmt.Errorf("mutual exclusion: %w", err)
		}
	}
	if word == w.word {
		return nil
	}
	return r.log.Changed(w.log, word)
}

// holder says which client has drawn a stamp (the random number that names it inside a lock), and
// for which word.
type holder struct {
	client *lockClient
	word   *lockWord
	node   int // bytes that the client writes into the node before it releases the lock
}

func (w *lockWord) owns(word, stamp uint64) bool { return word == w.value(stamp) }

// judgeLock checks mutual exclusion after the word of lock w, or the lock's guard, has changed.
// `word` and `guard` are their present values.
func (r *lockRun) judgeLock(w *lockWord, word, guard uint64) error {
	if err := r.judgeValue(w, word); err != nil {
		return err
	}
	last, lastKnown := r.stamps[w.guard]
	if guard != w.guard {
		next, known := r.stamps[guard]
		switch {
		case guard != 0 && (!known || next.word != w):
			return fmt.Errorf("the guard became %#x, which no client wrote there", guard)
		case w.guard != 0 && guard != 0 && !last.client.dead:
			return fmt.Errorf("client %d came in while client %d was inside", next.client.id, last.client.id)
		case guard != 0 && !w.owns(word, guard):
			return fmt.Errorf("client %d came in when the lock was %#x", next.client.id, word)
		case guard == 0 && !w.owns(w.word, w.guard):
			return fmt.Errorf("client %d left when the lock was %#x", last.client.id, w.word)
		case guard == 0:
			if err := r.judgeNode(w, w.guard, last.node); err != nil {
				return fmt.Errorf("client %d left too early: %w", last.client.id, err)
			}
		default:
			w.granted++
		}
	}
	if word != w.word && guard != 0 && guard == w.guard && lastKnown && !last.client.dead {
		return fmt.Errorf("the lock became %#x, was %#x, while client %d was inside", word, w.word, last.client.id)
	}
	return nil
}

// judgeValue returns an error if no client has written the value word to lock w.
func (r *lockRun) judgeValue(w *lockWord, word uint64) error {
	if word == 0 || w.kind == bitLock && word == 1 {
		return nil
	}
	if h, ok := r.stamps[word]; !ok || w.kind == bitLock || h.word != w {
		return fmt.Errorf("the lock became %#x, which no client wrote there (was %#x)", word, w.word)
	}
	return nil
}

// judgeNode returns an error unless the first n bytes of the lock's node are what the client with
// this stamp writes.
func (r *lockRun) judgeNode(w *lockWord, stamp uint64, n int) error {
	b := r.scratch[:n]
	if !w.node(b) {
		return nil
	}
	for i := 0; i+8 <= len(b); i += 8 {
		if got := binary.LittleEndian.Uint64(b[i:]); got != stamp^uint64(i) {
			return fmt.Errorf("byte %d of the node is %#x, want %#x", i, got, stamp^uint64(i))
		}
	}
	return nil
}

// fillNode fills the node b: every 8 bytes of it are computed from the stamp.
func fillNode(b []byte, stamp uint64) {
	for i := 0; i+8 <= len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], stamp^uint64(i))
	}
}
