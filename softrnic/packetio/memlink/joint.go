package memlink

import (
	"sync/atomic"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
)

// joint is the memory of one link with the state of one of its ends.
type joint struct {
	tx sender
	rx receiver
	// gone is set when the other end has ended, or has violated the protocol.
	gone atomic.Bool
	// broken ends the link by closing the connection. It is called once.
	broken func()
	mem    []byte
	// peer rings the other end's bell; bell is this end's own bell.
	peer, bell int
	// users counts the users of the memory and the bells: the port of the link, and calls in progress.
	// The last user releases them.
	users atomic.Int32
	// counted is how many of the packets that the peer has dropped (rx.dropped) are already in the
	// port's counters. The port's mu guards it.
	counted uint64
	// rung is true if the bell's socket has a message, or will get one soon. stroke is the buffer
	// for reading it. Only the waiting goroutine uses both.
	rung   bool
	stroke [1]byte
}

// newJoint returns a joint that owns the memory of a link and two sockets: peer rings the other
// end's bell, bell is this end's bell. release frees them. `out` and `in` are the indexes of the
// two directions in mem. broken closes the link's connection. The caller is the first user.
func newJoint(mem []byte, out, in, peer, bell int, broken func()) *joint {
	direction := func(i int) []byte { return mem[i*directLen : (i+1)*directLen : (i+1)*directLen] }
	j := &joint{tx: newSender(direction(out)), mem: mem, peer: peer, bell: bell, broken: broken}
	j.rx.words, j.rx.mem = wordsOf(direction(in)), direction(in)
	j.users.Store(1)
	return j
}

// hold adds a user. It returns false if the last user has left already.
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

// release frees the memory and the bells. It is called when the last user has left, and returns the
// number of packets that are lost with the link.
func (j *joint) release() (lost uint64) {
	lost = j.rx.untaken() + j.overflow()
	_ = unix.Munmap(j.mem) // cannot fail: it is mapped
	ring.CloseFiles(j.peer, j.bell)
	return lost
}

// overflow returns how many packets the other end has dropped, because the ring was full, since
// overflow was last called.
func (j *joint) overflow() (more uint64) {
	if n := j.rx.dropped.Load(); n > j.counted {
		more, j.counted = n-j.counted, n
	}
	return more
}

func (j *joint) wake() { sound(j.peer) }

// fault ends the link by closing its connection: because the peer has violated the protocol, or
// because the link is replaced.
func (j *joint) fault() {
	if !j.gone.Swap(true) {
		j.broken()
	}
}

// sleeping sets the word asleep, which says whether the receiver waits for its bell. If the sender
// has already cleared the word, it rings the bell once; the receiver reads this message before its
// next sleep.
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
