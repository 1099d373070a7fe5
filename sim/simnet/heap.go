package simnet

import "github.com/rdmalab/rdmalab/softrnic/clock"

// event is a scheduled call, or something that happens to a frame: it reaches the end of a link, or
// its time inside a node is over.
type event struct {
	at    clock.Time
	to    *half
	frame inFlight
	stage stage
	call  func()
}

// stage says where the frame of an event is.
type stage uint8

const (
	onLink  stage = iota
	stalled       // the frame has reached a node, which begins to work on it at the event's time
	inside        // a node works on the frame, and gets it at the event's time
	leaving       // a node has made the frame, which is put on the link at the event's time
)

// eventHeap orders events by their time; events with equal times by the order in which they were
// pushed. Only small keys move in the heap; the events stay in their slots.
type eventHeap struct {
	keys  []eventKey
	slots []event
	free  []int32
	seq   uint64
}

type eventKey struct {
	at   clock.Time
	seq  uint64
	slot int32
}

func (a *eventKey) before(b *eventKey) bool { return a.at < b.at || (a.at == b.at && a.seq < b.seq) }

// first returns the time of the earliest event, or clock.Never if there is none.
func (h *eventHeap) first() clock.Time {
	if len(h.keys) == 0 {
		return clock.Never
	}
	return h.keys[0].at
}

func (h *eventHeap) push(e event) {
	var slot int32
	if k := len(h.free); k > 0 {
		slot = h.free[k-1]
		h.free = h.free[:k-1]
		h.slots[slot] = e
	} else {
		slot = int32(len(h.slots))
		h.slots = append(h.slots, e)
	}
	h.seq++
	h.keys = append(h.keys, eventKey{e.at, h.seq, slot})
	i := len(h.keys) - 1
	k := h.keys[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !k.before(&h.keys[parent]) {
			break
		}
		h.keys[i] = h.keys[parent]
		i = parent
	}
	h.keys[i] = k
}

// pop removes and returns the earliest event. The heap must not be empty.
func (h *eventHeap) pop() event {
	slot := h.keys[0].slot
	last := len(h.keys) - 1
	k := h.keys[last]
	h.keys = h.keys[:last]
	if last > 0 {
		h.sink(k)
	}
	e := h.slots[slot]
	h.slots[slot] = event{}
	h.free = append(h.free, slot)
	return e
}

// sink inserts k at the root and moves it down to its place.
func (h *eventHeap) sink(k eventKey) {
	i := 0
	for {
		c := 2*i + 1
		if c >= len(h.keys) {
			break
		}
		if c+1 < len(h.keys) && h.keys[c+1].before(&h.keys[c]) {
			c++
		}
		if !h.keys[c].before(&k) {
			break
		}
		h.keys[i] = h.keys[c]
		i = c
	}
	h.keys[i] = k
}
