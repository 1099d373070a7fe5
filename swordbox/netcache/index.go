package netcache

import (
	"math/bits"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// ways is how many places a key can have. The index of a place is also the number of the cell of its
// value in the memory of servers.
const ways = 8

// index has the keys whose values are in the memory, or on their way to it, and chooses them.
//
// A value that the switch may use has a probe with a higher number than epoch. So all values become unknown by one
// assignment, however many there are, and no number of a place says more than it did: numbers have 64 bits, and a
// switch that sends a hundred million probes a second needs 5,000 years for them.
type index struct {
	// pages have the places, pagePlaces each. A page is nil until a key gets a place in it.
	pages [][]place
	cells int // how many places there can be
	// hot is how many GETs of a key, as the sketch estimates them, give it a place.
	hot uint32
	age time.Duration
	// fills is the number of the newest probe. Places whose last probe has a number up to epoch are Cold.
	fills, epoch uint64
	warm, used   int // how many places are Warm, and how many have a key
	counts       [sketchHashes][]uint32
	gets         int    // since all counts were halved
	halvings     uint32 // how often they were
	// woken is whether a place for which GETs wait has another state, or another key.
	woken bool
}

// place has a key. It has the key's hash alone: the value in the memory has the key itself.
type place struct {
	hash uint64
	// digest is that of the value; in Asked, of the answers that have passed since the probe if seen is true.
	digest uint64
	// fill is the number of the last probe, which was sent at the time since.
	fill  uint64
	since clock.Time
	// count is how many GETs there were, halved as often as all counts were up to the halving with number halved.
	count, halved uint32
	length        uint16 // of the value's answer, in bytes
	held          uint16 // how many GETs wait until the value can be read (see held.go)
	state         State  // valid if index.at has returned the place
	used, seen    bool
	// hasty is whether GETs do not wait for a value, because the last answer had none that fits, or took too long.
	hasty bool
}

// pagePlaces is how many places are allocated at a time. A set of places is in one page.
const pagePlaces = ways << 5

// placeBytes is how many bytes a place takes.
const placeBytes = 48

// The sketch (count-min) that counts the GETs of keys without a place. It has as many counters as there can be keys,
// within these bounds; the upper one is that of NetCache.
const (
	sketchHashes         = 3
	minSketch, maxSketch = 1 << 12, 1 << 16
	// halving is after how many GETs for a counter of one hash function all counts are halved, so that keys that were asked for
	// once make room.
	halving = 16
)

// patience is how long a probe may take.
const patience = 20 * time.Millisecond

func newIndex(n int, hot uint32, age time.Duration) index {
	n = (n + ways - 1) / ways * ways
	x := index{pages: make([][]place, (n+pagePlaces-1)/pagePlaces), cells: n, hot: hot, age: age}
	for i := range x.counts {
		x.counts[i] = make([]uint32, min(max(1<<bits.Len(uint(n-1)), minSketch), maxSketch))
	}
	return x
}

// set returns the first of the ways places that a key with hash h can have.
func (x *index) set(h uint64) int { return int(h>>16%uint64(x.cells/ways)) * ways }

// at returns the place with an index. Its page must be there.
func (x *index) at(i int) *place {
	p := &x.pages[i/pagePlaces][i%pagePlaces]
	if p.fill <= x.epoch {
		p.state = Cold
	}
	return p
}

// find returns the place of a key with hash h; -1 means that it has none.
func (x *index) find(h uint64) int {
	from := x.set(h)
	if x.pages[from/pagePlaces] == nil {
		return -1
	}
	for i := from; i < from+ways; i++ {
		if p := x.at(i); p.used && p.hash == h {
			return i
		}
	}
	return -1
}

// get says what to do with a GET: Forward, Probe, Read, or Hold. at is the place of the key; -1 means that it has
// none. If it is Probe, fill is the number of the probe. room is false if no key can get a place now.
func (x *index) get(now clock.Time, h uint64, room bool) (at int, fill uint64, does Step) {
	if x.gets++; x.gets == halving*len(x.counts[0]) {
		x.halve()
	}
	at = x.find(h)
	if at < 0 {
		if at = x.promote(h, room); at < 0 {
			return -1, 0, Forward
		}
	}
	p := x.at(at)
	p.count = x.heat(p) + 1
	if p.state == Warm && now.Sub(p.since) > x.age || p.state == Asked && now.Sub(p.since) > patience {
		x.step(at, evOld)
	}
	does = x.ask(now, at)
	return at, p.fill, does
}

// ask makes the place with an index go on by a GET of its key.
func (x *index) ask(now clock.Time, at int) Step {
	p := x.at(at)
	does := x.step(at, evGet)
	switch {
	case does == Probe:
		x.fills++
		p.fill, p.since, p.seen = x.fills, now, false
	case does == Hold && p.hasty:
		return Forward
	}
	return does
}

// step makes the place go on, and returns what the switch does.
func (x *index) step(at int, on event) Step {
	p := x.at(at)
	c := diagram[p.state][on]
	if !c.ok {
		return Forward
	}
	x.become(p, c.to)
	return c.does
}

// become changes the state of a place that at has returned.
func (x *index) become(p *place, to State) {
	if p.state == Warm {
		x.warm--
	}
	if to == Warm {
		x.warm++
	}
	x.woken = x.woken || p.held > 0 && p.state != to
	p.state = to
}

// passes notes the answer to a GET that is no probe. shown is false if the answer shows no value that can be
// read.
func (x *index) passes(h uint64, shown bool, digest uint64) {
	at := x.find(h)
	if at < 0 {
		return
	}
	p := x.at(at)
	if p.state == Asked && shown && !p.seen {
		p.seen, p.digest = true, digest
	}
	if shown && p.digest == digest {
		x.step(at, evSame)
	} else {
		x.step(at, evOther)
	}
}

// asked reports whether the place with an index waits for the answer to the probe with a number.
func (x *index) asked(at int, fill uint64) bool {
	p := x.at(at)
	return p.fill == fill && p.state == Asked
}

// answered notes the answer to a probe. It returns Store if the value is to be written. shown and digest are as
// for passes. fits is true if the value can be kept, and length is that of the answer in bytes.
func (x *index) answered(now clock.Time, q *probe, shown, fits bool, digest uint64, length int) Step {
	if !x.asked(q.at, q.fill) { // a client gets this answer all the same
		x.passes(q.hash, shown, digest)
		return Forward
	}
	p := x.at(q.at)
	p.hasty = !shown || !fits || now.Sub(p.since) > waitPatience
	if !shown || !fits || p.seen && p.digest != digest {
		return x.step(q.at, evUnfit)
	}
	p.digest, p.length = digest, uint16(length)
	return x.step(q.at, evAnswer)
}

// ends notes an event of the value of a probe, evStored or evLost, if the place still has this value. fill has the
// lower bits of the probe's number.
func (x *index) ends(at int, fill uint32, on event) {
	if p := x.at(at); p.used && uint32(p.fill) == fill {
		x.step(at, on)
	}
}

// changes notes a write, evWrite or evDone, of a key with hash h.
func (x *index) changes(h uint64, on event) {
	if at := x.find(h); at >= 0 {
		x.step(at, on)
	}
}

// clear makes the values of all keys unknown, and returns how many could answer GETs.
func (x *index) clear() (n int) {
	n, x.warm, x.epoch, x.woken = x.warm, 0, x.fills, true
	return n
}

// promote counts a GET of a key without a place, and gives it one if it is hot and a place of its set is free or
// has a key with fewer GETs. The result is -1 if it has none. room is false if no key can get a place now.
func (x *index) promote(h uint64, room bool) int {
	least := ^uint32(0)
	for i := range x.counts {
		n := &x.counts[i][telemetry.Place(h, i, len(x.counts[i]))]
		*n++
		least = min(least, *n)
	}
	if least < x.hot || !room {
		return -1
	}
	from := x.set(h)
	if page := &x.pages[from/pagePlaces]; *page == nil {
		*page = make([]place, min(pagePlaces, x.cells-from/pagePlaces*pagePlaces))
	}
	at := from
	for i := from; i < from+ways; i++ {
		if p := x.at(i); !p.used {
			at = i
			break
		} else if x.heat(p) < x.heat(x.at(at)) {
			at = i
		}
	}
	p := x.at(at)
	switch {
	case !p.used:
		x.used++
	case p.count >= least:
		return -1
	default:
		x.become(p, Cold)
	}
	// A probe of the former key, or its WRITE, has another fill than any probe of this one.
	x.woken = x.woken || p.held > 0
	*p = place{hash: h, used: true, count: least, halved: x.halvings}
	return at
}

// heat returns the GETs of a place, of which older ones count less.
func (x *index) heat(p *place) uint32 {
	p.count >>= x.halvings - p.halved
	p.halved = x.halvings
	return p.count
}

// halve makes older GETs count less. Places follow when they are used (heat).
func (x *index) halve() {
	x.gets = 0
	x.halvings++
	for _, list := range x.counts {
		for i := range list {
			list[i] /= 2
		}
	}
}
