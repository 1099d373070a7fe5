package lookuptable

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// table is the table of a rule.
type table struct {
	Layout
	m     *Machine
	id    string // of the rule
	port  int    // of the host whose frames are looked up
	links []*link
	cache cache
	// changes counts changes of entries: a lookup that began before one must not fill the cache.
	changes uint64
	stats   Stats
	why     string // why the last change was refused
	buf     []byte // scratch: a frame with an entry in the cache
}

// Reasons why the switch drops a frame.
const (
	ReasonDenied pipeline.Reason = "dropped by a table entry"
	ReasonMiss   pipeline.Reason = "no table entry"
)

// take takes a frame that has come in. It returns false if the frame is no IP packet.
func (t *table) take(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	var v view
	if !v.parse(f.Data) {
		return false
	}
	t.stats.Frames++
	k := v.key(f.Data, t.Flow)
	h := k.Hash()
	server, _ := t.Place(h)
	l := t.links[server].srv
	if !l.Busy(h) {
		if e := t.cache.get(&k, h); e != nil {
			if !e.Action.fits(f.Data, &v) {
				t.stats.Unfit++
				return true
			}
			t.stats.Cached++
			t.buf = append(t.buf[:0], f.Data...)
			f.Data = t.buf
			t.apply(c, in, f, &v, &e.Action, "by an entry in the switch")
			return true
		}
	}
	l.Bounce(c, in, f, &k, h)
	return true
}

// done ends the lookup of a frame that has come back. The frame may be changed.
func (t *table) done(c *pipeline.Ctx, l *lookup, f packetio.Frame) {
	var v view
	switch {
	case l.state == torn:
		t.stats.Torn++
	case l.state == miss:
		t.stats.Misses++
		if !t.DropMiss {
			c.Resume(l.in, -1, f, "looked up: no entry")
		}
	case l.state != hit || !v.parse(f.Data):
		t.stats.Lost++
	case !l.action.fits(f.Data, &v):
		t.stats.Unfit++
	default:
		t.stats.Hits++
		if l.changes == t.changes {
			t.cache.put(&l.key, &l.action, l.hash)
		}
		t.apply(c, l.in, f, &v, &l.action, "by an entry in a server's memory")
	}
}

// apply does with a frame what its entry says. It may change the frame.
func (t *table) apply(c *pipeline.Ctx, in int, f packetio.Frame, v *view, a *Action, note string) {
	if a.Ops&OpDrop != 0 {
		t.stats.Denied++
		return
	}
	a.apply(&f, v, t.m.cfg.MAC)
	to := -1
	if a.Ops&OpEgress != 0 {
		to = int(a.Egress)
	}
	if c.Observed() {
		note = "looked up: " + a.String() + ", " + note
	}
	c.Resume(in, to, f, note)
}

// inFlight returns how many frames are in flight.
func (t *table) inFlight() (n int) {
	for _, l := range t.links {
		n += l.srv.InFlight()
	}
	return n
}

// waiting returns how many changes of entries have not ended.
func (t *table) waiting() (n int) {
	for _, l := range t.links {
		n += l.srv.Waiting()
	}
	return n
}
