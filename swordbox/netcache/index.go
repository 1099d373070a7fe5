package netcache

import (
	"bytes"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// ways is how many places a key can have. The index of a place is also the number of the cell of its
// value in the memory of servers.
const ways = 8

// index has the keys whose values are in the memory, or on their way to it, and chooses them.
type index struct {
	places []place
	// hot is how many GETs of a key, as the sketch estimates them, give it a place.
	hot    uint32
	age    time.Duration
	fills  uint32 // number of probes so far
	counts [sketchHashes][]uint32
	gets   int // since all counts were halved
}

// place has a key.
type place struct {
	key   []byte
	hash  uint64
	used  bool
	state State
	// fill is the number of the last probe, which was sent at the time since.
	fill  uint32
	since clock.Time
	// digest is that of the value; in Asked, of the answers that have passed since the probe if seen is true.
	digest uint64
	seen   bool
	length int    // of the value's answer, in bytes
	count  uint32 // of GETs
}

// The sketch (count-min) that counts the GETs of keys without a place.
const (
	sketchHashes = 3
	sketchWidth  = 1 << 12
	// halving is after how many GETs all counts are halved, so that keys that were asked for once make room.
	halving = 1 << 16
)

// patience is how long a probe may take.
const patience = 20 * time.Millisecond

func newIndex(n int, hot uint32, age time.Duration) index {
	x := index{places: make([]place, (n+ways-1)/ways*ways), hot: hot, age: age}
	for i := range x.counts {
		x.counts[i] = make([]uint32, sketchWidth)
	}
	return x
}

// set returns where the places are that a key with hash h can have.
func (x *index) set(h uint64) (from, to int) {
	from = int(h>>16%uint64(len(x.places)/ways)) * ways
	return from, from + ways
}

// find returns the place of a key with hash h; -1 means that it has none.
func (x *index) find(h uint64) int {
	from, to := x.set(h)
	for i := from; i < to; i++ {
		if p := &x.places[i]; p.used && p.hash == h {
			return i
		}
	}
	return -1
}

// get says what to do with a GET: Forward, Probe, or Read. at is the place of the key; -1 means that it has
// none.
func (x *index) get(now clock.Time, key []byte, h uint64) (at int, does Step) {
	if x.gets++; x.gets == halving {
		x.halve()
	}
	at = x.find(h)
	if at < 0 {
		if at = x.promote(key, h); at < 0 {
			return -1, Forward
		}
	}
	p := &x.places[at]
	p.count++
	switch {
	case !bytes.Equal(p.key, key):
		return -1, Forward
	case p.state == Warm && now.Sub(p.since) > x.age, p.state == Asked && now.Sub(p.since) > patience:
		x.step(at, evOld)
	}
	return at, x.step(at, evGet)
}

// step makes the place go on, and returns what the switch does.
func (x *index) step(at int, on event) Step {
	p := &x.places[at]
	c := diagram[p.state][on]
	if !c.ok {
		return Forward
	}
	p.state = c.to
	return c.does
}

// asks begins a probe for a place that is Asked, and returns the probe's number.
func (x *index) asks(now clock.Time, at int) uint32 {
	p := &x.places[at]
	x.fills++
	p.fill, p.since, p.seen = x.fills, now, false
	return p.fill
}

// passes notes the answer to a GET that is no probe. shown is false if the answer shows no value that can be
// read.
func (x *index) passes(h uint64, shown bool, digest uint64) {
	at := x.find(h)
	if at < 0 {
		return
	}
	p := &x.places[at]
	if p.state == Asked && shown && !p.seen {
		p.seen, p.digest = true, digest
	}
	if shown && p.digest == digest {
		x.step(at, evSame)
	} else {
		x.step(at, evOther)
	}
}

// answered notes the answer to a probe. It returns Store if the value is to be written. shown and digest are as
// for passes. fits is true if the value can be kept, and length is that of the answer in bytes.
func (x *index) answered(q *probe, shown, fits bool, digest uint64, length int) Step {
	at, p := q.at, &x.places[q.at]
	switch {
	case !p.used || p.fill != q.fill || p.state != Asked: // a client gets this answer all the same
		x.passes(q.hash, shown, digest)
		return Forward
	case !shown || !fits || p.seen && p.digest != digest:
		return x.step(at, evUnfit)
	}
	p.digest, p.length = digest, length
	return x.step(at, evAnswer)
}

// ends notes an event of the value of probe number fill, evStored or evLost, if the place still has this value.
func (x *index) ends(at int, fill uint32, on event) {
	if p := &x.places[at]; p.used && p.fill == fill {
		x.step(at, on)
	}
}

// changes notes a write, evWrite or evDone, of a key with hash h.
func (x *index) changes(h uint64, on event) {
	if at := x.find(h); at >= 0 {
		x.step(at, on)
	}
}

// clear makes the values of all keys unknown, and returns how many there were.
func (x *index) clear() (n int) {
	for i := range x.places {
		if p := &x.places[i]; p.used && p.state != Cold {
			n++
			p.state = Cold
		}
	}
	return n
}

// warm returns how many values can answer GETs. used returns how many keys have a place.
func (x *index) warm() (warm, used int) {
	for i := range x.places {
		if p := &x.places[i]; p.used {
			used++
			if p.state == Warm {
				warm++
			}
		}
	}
	return warm, used
}

// promote counts a GET of a key without a place, and gives it one if it is hot and a place of its set is free or
// has a key with fewer GETs. The result is -1 if it has none.
func (x *index) promote(key []byte, h uint64) int {
	least := ^uint32(0)
	for i := range x.counts {
		n := &x.counts[i][telemetry.Place(h, i, sketchWidth)]
		*n++
		least = min(least, *n)
	}
	if least < x.hot {
		return -1
	}
	from, to := x.set(h)
	at := from
	for i := from; i < to; i++ {
		if p := &x.places[i]; !p.used {
			at = i
			break
		} else if p.count < x.places[at].count {
			at = i
		}
	}
	p := &x.places[at]
	if p.used && p.count >= least {
		return -1
	}
	// A probe of the former key, or its WRITE, has another fill than any probe of this one.
	*p = place{key: append(p.key[:0], key...), hash: h, used: true, count: least}
	return at
}

// halve makes older GETs count less.
func (x *index) halve() {
	x.gets = 0
	for _, list := range x.counts {
		for i := range list {
			list[i] /= 2
		}
	}
	for i := range x.places {
		x.places[i].count /= 2
	}
}
