package netcache

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// wait is a GET that waits in the switch. It owns the bytes of the frame.
type wait struct {
	frame packetio.Frame
	in    int // the port at which it came in
	at    int
	hash  uint64 // of the key
	fill  uint64 // of the value that its READ is for
	since clock.Time
	live  bool // it waits; if it does not, the place is free, or its READ is still in flight
	held  bool // it has no READ yet
	// before and after are the indices of the GETs that began to wait before and after this one; none if there is none.
	before, after int
}

const (
	// maxWaits is how many READs for GETs of a rule may be in flight, with the GETs that are held for one, of which there
	// are at most maxHeld; maxFrame is how many bytes such a GET can have.
	maxWaits, maxHeld, maxFrame = 512, 256, 512
	// maxWoken is how many held GETs go on for one packet.
	maxWoken = 126
	// waitPatience is how long a GET waits. Clients take a number again that they think is no more in the
	// network, so the switch must not keep a request for as long as a connection to a memory server takes to fail.
	waitPatience = 2 * time.Millisecond

	none = -1
)

// waits has the GETs of a cache that wait for the READs of values, and those that are held until there is a value.
type waits struct {
	list []wait
	free []int // indices of those that have no READ in flight and are not held
	// first and last are the GETs that have waited for the longest and the shortest time; none if none waits.
	first, last int
	count       int // how many wait
	held        int // how many of them are held
}

func newWaits() waits {
	t := waits{list: make([]wait, maxWaits), first: none, last: none}
	for i := range t.list {
		t.list[i].frame.Data = make([]byte, 0, maxFrame)
		t.free = append(t.free, i)
	}
	return t
}

// room reports whether a GET can wait.
func (t *waits) room(f *packetio.Frame) bool { return len(t.free) > 0 && len(f.Data) <= maxFrame }

// begin lets a GET wait, and returns its index. There must be room.
func (t *waits) begin(f *packetio.Frame, in, at int, hash, fill uint64, now clock.Time) int {
	i := t.free[len(t.free)-1]
	t.free = t.free[:len(t.free)-1]
	w := &t.list[i]
	b := append(w.frame.Data[:0], f.Data...)
	*w = wait{frame: *f, in: in, at: at, hash: hash, fill: fill, since: now, live: true, before: t.last, after: none}
	w.frame.Data, w.frame.Open = b, nil
	if t.last == none {
		t.first = i
	} else {
		t.list[t.last].after = i
	}
	t.last = i
	t.count++
	return i
}

// hold lets a GET that has begun to wait have no READ for now.
func (t *waits) hold(i int) { t.list[i].held, t.held = true, t.held+1 }

// reads notes that a held GET has a READ now, for the value of a probe.
func (t *waits) reads(i int, fill uint64) {
	w := &t.list[i]
	w.held, w.fill = false, fill
	t.held--
}

// drop ends the wait of a held GET, and returns the GET, which is valid until the next begin.
func (t *waits) drop(i int) *wait {
	w := &t.list[i]
	t.leave(w)
	w.held = false
	t.held--
	t.free = append(t.free, i)
	return w
}

// heldAll appends the indices of the held GETs, those that wait for the longest time first.
func (t *waits) heldAll(list []int) []int {
	for i := t.first; i != none; i = t.list[i].after {
		if t.list[i].held {
			list = append(list, i)
		}
	}
	return list
}

// leave ends the wait of a GET.
func (t *waits) leave(w *wait) {
	if w.before == none {
		t.first = w.after
	} else {
		t.list[w.before].after = w.after
	}
	if w.after == none {
		t.last = w.before
	} else {
		t.list[w.after].before = w.before
	}
	w.live = false
	t.count--
}

// end is called when the READ for the GET with an index has ended. It returns the GET, which is valid until the next
// begin; nil if it does not wait any more.
func (t *waits) end(i int) *wait {
	t.free = append(t.free, i)
	w := &t.list[i]
	if !w.live {
		return nil
	}
	t.leave(w)
	return w
}

// late ends the wait of the first GET if it is too long, and returns the GET; nil if there is none. held is whether it
// was held.
func (t *waits) late(now clock.Time) (w *wait, held bool) {
	if t.deadline() > now {
		return nil, false
	}
	if w = &t.list[t.first]; w.held {
		return t.drop(t.first), true
	}
	t.leave(w)
	return w, false
}

// deadline returns when the wait of the first GET is too long; clock.Never if none waits.
func (t *waits) deadline() clock.Time {
	if t.count == 0 {
		return clock.Never
	}
	return t.list[t.first].since.Add(waitPatience)
}
