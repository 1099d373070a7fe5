package memlink

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// joint is the memory of one link with the state of one of its ends.
type joint struct {
	tx sender
	rx receiver
	// gone: the other end has ended, or has violated the protocol.
	gone atomic.Bool
	// broken is called once when the link must end: it closes the connection.
	broken func()
	mem    []byte
	// peer rings the other end's bell; bell is this end's own bell.
	peer, bell int
	// users counts the users of the memory and the bells: the port of the link, and calls in
	// progress. At 0 they are released.
	users atomic.Int32
	// counted is the part of the peer's number of drops that the counters of the port already have;
	// guarded by the port's mu.
	counted uint64
	// rung: the bell has strokes, or will get one soon. stroke is a read buffer. Only the waiting
	// goroutine uses both.
	rung   bool
	stroke [1]byte
}

// newJoint takes over a link's memory, the descriptor that rings the other end's bell, and this
// end's bell. out and `in` are the indexes of the two directions. The caller is the first user.
func newJoint(mem []byte, out, in, peer, bell int, broken func()) *joint {
	direction := func(i int) []byte { return mem[i*directLen : (i+1)*directLen : (i+1)*directLen] }
	j := &joint{tx: newSender(direction(out)), mem: mem, peer: peer, bell: bell, broken: broken}
	j.rx.words, j.rx.mem = wordsOf(direction(in)), direction(in)
	j.users.Store(1)
	return j
}

// hold adds a user. It returns false if there are no users any more.
func (j *joint) hold() bool {
	for {
		n := j.users.Load()
		if n == 0 {
			return false
		}
		if j.users.CompareAndSwap(n, n+1) {
			return true
		}
	}
}

// release frees everything after the last user has left, and returns the number of packets that are
// lost with it.
func (j *joint) release() (lost uint64) {
	lost = j.rx.untaken() + j.overflow()
	_ = unix.Munmap(j.mem) // cannot fail: it is mapped
	shut(j.peer, j.bell)
	return lost
}

// overflow returns the number of packets dropped by the other end because the ring was full, as far
// as they were not counted yet.
func (j *joint) overflow() (more uint64) {
	if n := j.rx.dropped.Load(); n > j.counted {
		more, j.counted = n-j.counted, n
	}
	return more
}

// wake rings the other end's bell.
func (j *joint) wake() { sound(j.peer) }

// fault ends a link.
func (j *joint) fault() {
	if !j.gone.Swap(true) {
		j.broken()
	}
}

// sleeping sets whether the receiver waits for its bell. The sender that resets the word rings
// once; that stroke is read before the next sleep.
func (j *joint) sleeping(on bool) {
	if !on {
		j.rung = j.rx.asleep.Swap(0) == 0 || j.rung
		return
	}
	if j.rung {
		answer(j.bell, j.stroke[:])
		j.rung = false
	}
	j.rx.asleep.Store(1)
}
