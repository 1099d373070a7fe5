package netcache

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// While a probe is with the server, and while its value is on the way to the memory, other GETs of the key are held.
// Otherwise all of them would go to the server, and each next probe of a hot key would wait there behind them: one write
// in a hundred would take most of what a cache gains. A held GET that goes on is treated as one that arrives then.

// hold lets a GET wait until its value can be read. It returns false if there is no room.
func (k *cache) hold(c *pipeline.Ctx, in int, f *packetio.Frame, at int, hash uint64) bool {
	if k.waits.held == maxHeld || !k.waits.room(f) {
		k.stats.Busy++
		return false
	}
	k.stats.Held++
	k.waits.hold(k.waits.begin(f, in, at, hash, 0, c.Now))
	k.index.at(at).held++
	return true
}

// leaves notes that a GET of a place is no longer held. slow is whether it was held for too long; then later ones are
// not held, until a probe has been answered.
func (x *index) leaves(w *wait, slow bool) {
	if p := x.at(w.at); p.used && p.hash == w.hash && p.held > 0 {
		p.held--
		p.hasty = p.hasty || slow
	}
}

// wake lets the held GETs go on whose places have another state. read is whether a READ has ended, so that there is room
// for another one.
func (k *cache) wake(c *pipeline.Ctx, read bool) {
	if !k.index.woken && (!read || !k.crowded) {
		return
	}
	all := k.index.woken
	k.index.woken, k.crowded = false, false
	k.holds = k.waits.heldAll(k.holds[:0])
	went := 0
	for _, i := range k.holds {
		if w := &k.waits.list[i]; w.live && w.held && k.goOn(c, i) { // one before it may have ended it
			went++
		}
		if k.crowded && went > 0 && !all {
			return // the READs that have ended made no more room than that
		}
		if went == maxWoken {
			k.index.woken = true // the next packet, or Tick, goes on
			return
		}
	}
}

// goOn treats a held GET as one that arrives now, if the state of its place lets it go on, and reports whether it did.
func (k *cache) goOn(c *pipeline.Ctx, i int) bool {
	w := &k.waits.list[i]
	p := k.index.at(w.at)
	does := Forward // if the place has another key
	if p.used && p.hash == w.hash {
		does = k.index.ask(c.Now, w.at)
		if ch, _ := k.place(w.at); does == Read && !ch.reads() {
			if ch.connected() {
				k.crowded = true
				return false
			}
			does = Forward
		}
		if does == Hold {
			return false
		}
		k.index.leaves(w, false)
	}
	switch does {
	case Read:
		k.waits.reads(i, p.fill)
		k.read(c, i)
		return true
	case Probe:
		var h packet
		h.parse(w.frame.Data)
		r, _ := parseRequest(h.payload)
		if k.probe(c, w.in, &w.frame, &h, probe{client: h.sender(r.id), at: w.at, fill: p.fill, hash: w.hash}) {
			k.waits.drop(i)
			return true
		}
		p.hasty = true // no probe can leave: those behind it go on, too
	case Forward, Store, Hold:
	}
	k.forward(c, k.waits.drop(i))
	return true
}
