package nic

import (
	"slices"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
)

// ring is a FIFO of bounded size that allocates its memory once.
type ring[T any] struct {
	items   []T
	head, n int
}

func newRing[T any](size int) ring[T] { return ring[T]{items: make([]T, size)} }

func (r *ring[T]) full() bool { return r.n == len(r.items) }

func (r *ring[T]) push(v T) {
	r.items[(r.head+r.n)%len(r.items)] = v
	r.n++
}

// front returns the oldest entry. The ring must not be empty.
func (r *ring[T]) front() *T { return &r.items[r.head] }

func (r *ring[T]) pop() T {
	v := r.items[r.head]
	var zero T
	r.items[r.head] = zero
	r.head = (r.head + 1) % len(r.items)
	r.n--
	return v
}

func (r *ring[T]) remove(match func(T) bool) {
	for range r.n {
		if v := r.pop(); !match(v) {
			r.push(v)
		}
	}
}

// waiter is a command, or a ticket (an inbound WRITE or REKEY), that waits for the window. index is
// its number in NIC.slots or NIC.tickets. deadline is when its dispatch timeout has passed. size is
// how many bytes it needs.
type waiter struct {
	ticket   bool
	index    uint16
	deadline clock.Time
	size     int
}

// turnsOfFirst is how many turns class 0 gets for each turn of class 1 while both wait.
const turnsOfFirst = 4

// window is the solicitation window. It bounds the inbound bytes that are requested and have not
// arrived. It has the FIFOs of the commands and tickets that wait for it.
type window struct {
	size, used int // bytes
	fifos      [onerma.Classes]ring[waiter]
	turns      int // turns of class 0 since the last turn of class 1, while both waited
	// owed has the bytes that were requested by operations which were ended early (see owe), in the
	// order of debt.until.
	owed []debt
}

// debt is a number of bytes that may still arrive until a certain time, and count in the window
// until then.
type debt struct {
	size  int
	until clock.Time
}

func newWindow(size, waiters int) window {
	w := window{size: size}
	for i := range w.fifos {
		w.fifos[i] = newRing[waiter](waiters)
	}
	return w
}

// ready reports whether admit would return a waiter.
func (w *window) ready() bool {
	return w.size-w.used >= onerma.MaxOp && w.fifos[0].n+w.fifos[1].n > 0
}

// admit removes the next waiter from its FIFO and debits its size. The bool is false if there is no
// waiter, or fewer than 4096 bytes of the window are free.
func (w *window) admit() (waiter, bool) {
	if !w.ready() {
		return waiter{}, false
	}
	class := 0
	switch both := w.fifos[0].n > 0 && w.fifos[1].n > 0; {
	case both && w.turns < turnsOfFirst:
		w.turns++
	case both:
		class, w.turns = 1, 0
	case w.fifos[1].n > 0:
		class, w.turns = 1, 0
	}
	x := w.fifos[class].pop()
	w.used += x.size
	return x, true
}

// refund gives back to the window bytes that admit or owe has debited.
func (w *window) refund(size int) { w.used -= size }

// owe debits size bytes from the window until a given time, because they may still arrive until
// then: an operation that has requested them is ended early, and they are owed until one more timeout
// has passed. The time must not be before that of an earlier call.
func (w *window) owe(size int, until clock.Time) {
	w.used += size
	if k := len(w.owed); k > 0 && w.owed[k-1].until == until {
		w.owed[k-1].size += size
		return
	}
	w.owed = append(w.owed, debt{size, until})
}

// settle gives back to the window those bytes that the method owe has debited until `now` or
// earlier.
func (w *window) settle(now clock.Time) {
	k := 0
	for ; k < len(w.owed) && w.owed[k].until <= now; k++ {
		w.refund(w.owed[k].size)
	}
	w.owed = slices.Delete(w.owed, 0, k)
}

// expired removes a waiter that has waited for the dispatch timeout. The bool is false if there is
// no such waiter.
func (w *window) expired(now clock.Time) (waiter, bool) {
	for i := range w.fifos {
		if f := &w.fifos[i]; f.n > 0 && f.front().deadline <= now {
			return f.pop(), true
		}
	}
	return waiter{}, false
}

// deadline returns when the first waiter expires, or, if that is earlier, when the first bytes in
// w.owed no longer count in the window. All waiters have the same dispatch timeout, so the first
// one of each FIFO expires first.
func (w *window) deadline() clock.Time {
	at := clock.Never
	if len(w.owed) > 0 {
		at = w.owed[0].until
	}
	for i := range w.fifos {
		if f := &w.fifos[i]; f.n > 0 {
			at = clock.Min(at, f.front().deadline)
		}
	}
	return at
}

func (w *window) remove(match func(waiter) bool) {
	for i := range w.fifos {
		w.fifos[i].remove(match)
	}
}
