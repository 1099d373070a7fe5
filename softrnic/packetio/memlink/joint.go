package memlink

import (
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// joint is the memory of one link as one of its ends uses it.
type joint struct {
	tx sender
	rx receiver
	// gone: the other end has ended, or wrote what cannot be.
	gone atomic.Bool
	// broken is called once, when the link is to end: it ends the connection.
	broken func()
	mem    []byte
	// peer wakes the other end; bell is woken by it.
	peer, bell int
	// users counts those who use the memory and the bells: the port whose link it is, and calls. At
	// zero they are released.
	users atomic.Int32
	// counted is how much of the peer's count of drops is in the counters of the port; guarded by
	// its mu.
	counted uint64
	// rung: the bell has strokes, or gets one soon. stroke is scratch. Both are of the goroutine that
	// waits.
	rung   bool
	stroke [1]byte
}

// newJoint takes over a link's memory, a bell of the other end and one of this end. out and in are
// the directions. The caller is its first user.
func newJoint(mem []byte, out, in, peer, bell int, broken func()) *joint {
	direction := func(i int) []byte { return mem[i*directLen : (i+1)*directLen : (i+1)*directLen] }
	j := &joint{tx: newSender(direction(out)), mem: mem, peer: peer, bell: bell, broken: broken}
	j.rx.words, j.rx.mem = wordsOf(direction(in)), direction(in)
	j.users.Store(1)
	return j
}

// hold adds a user, unless the last one has left.
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

// release gives up what the last user has left, and returns how many packets are lost with it.
func (j *joint) release() (lost uint64) {
	lost = j.rx.left() + j.overflow()
	_ = unix.Munmap(j.mem) // it is mapped
	shut(j.peer, j.bell)
	return lost
}

// overflow returns the packets that the other end had no room for, and that were not counted yet.
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

// sleeping says whether the receiver waits for its bell. The sender that takes the word back rings
// once; these strokes are taken before the next sleep.
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
