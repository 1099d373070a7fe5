package slab

import "slices"

// Queue is a first-in, first-out queue.
type Queue[T any] struct {
	list []T
	head int // index of the first element that is in the queue
}

func (q *Queue[T]) Len() int { return len(q.list) - q.head }

// Push puts v at the end. Room at the front is used again before the queue grows.
func (q *Queue[T]) Push(v T) {
	if q.head > 0 && q.head >= len(q.list)/2 && len(q.list) == cap(q.list) {
		q.list = q.list[:copy(q.list, q.list[q.head:])]
		q.head = 0
	}
	q.list = append(q.list, v)
}

// Pop takes the first element. ok is false if there is none.
func (q *Queue[T]) Pop() (v T, ok bool) {
	if q.Len() == 0 {
		return v, false
	}
	v = q.list[q.head]
	q.head++
	return v, true
}

// Remove removes the elements for which match returns true. The others keep their order.
func (q *Queue[T]) Remove(match func(T) bool) {
	q.list, q.head = slices.DeleteFunc(q.list[q.head:], match), 0
}

// Anywhere stands for any memory server, in place of a server's number.
const Anywhere = -1

// Free has free places of one length by memory server. T names a place.
type Free[T any] struct {
	on   []Queue[T]
	turn int // the server from which Pop(Anywhere) takes the next place
	// credit has a number for each server. PopWeighed takes a place of the server with the greatest
	// number.
	credit []int64
}

// Len returns the number of places on a server, or on all servers (Anywhere).
func (f *Free[T]) Len(server int) (n int) {
	for i := range f.on {
		if server == Anywhere || server == i {
			n += f.on[i].Len()
		}
	}
	return n
}

func (f *Free[T]) Push(server int, v T) {
	for len(f.on) <= server {
		f.on = append(f.on, Queue[T]{})
	}
	f.on[server].Push(v)
}

// Pop takes a place of a server. For Anywhere it takes places of all servers in turn. ok is false
// if there is none.
func (f *Free[T]) Pop(server int) (v T, ok bool) {
	if server != Anywhere {
		if server < len(f.on) {
			v, ok = f.on[server].Pop()
		}
		return v, ok
	}
	for range f.on {
		i := f.turn
		f.turn = (i + 1) % len(f.on)
		if v, ok = f.on[i].Pop(); ok {
			break
		}
	}
	return v, ok
}

// PopWeighed takes a place. Its calls choose the servers in proportion to weights, which has one
// weight for each server. In every call, each server that has places adds its weight to its credit.
// The server with the greatest credit gives the place, and its credit decreases by the sum of the
// added weights. ok is false if no server with a weight above 0 has a place.
func (f *Free[T]) PopWeighed(weights []int64) (v T, ok bool) {
	best, total := -1, int64(0)
	for i := range f.on {
		if i >= len(f.credit) {
			f.credit = append(f.credit, 0)
		}
		if f.on[i].Len() == 0 || weights[i] == 0 {
			continue
		}
		f.credit[i] += weights[i]
		total += weights[i]
		if best < 0 || f.credit[i] > f.credit[best] {
			best = i
		}
	}
	if best < 0 {
		return v, false
	}
	f.credit[best] -= total
	return f.on[best].Pop()
}

// All calls visit for every place, server by server.
func (f *Free[T]) All(visit func(T)) {
	for i := range f.on {
		for _, v := range f.on[i].list[f.on[i].head:] {
			visit(v)
		}
	}
}

func (f *Free[T]) Remove(match func(T) bool) {
	for i := range f.on {
		f.on[i].Remove(match)
	}
}
