package lookuptable

import (
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Table is the lookup table of a rule. It decides what happens to each frame of the rule's host.
type Table struct {
	Layout
	m     *Machine
	id    string // ID of the rule
	port  int    // port of the host whose frames are looked up
	links []*Link
	cache cache
	// changes counts how often the cache had to forget entries. A lookup whose READ was sent before
	// changes grew last must not fill the cache.
	changes uint64
	balancer
	stats Stats
	why   string // why the last change was refused
	buf   []byte // scratch: a frame with an entry in the cache
}

// Reasons why the switch drops a frame.
const (
	ReasonDenied  pipeline.Reason = "denied by a table entry"
	ReasonMiss    pipeline.Reason = "no table entry"
	ReasonTorn    pipeline.Reason = "torn table entry"
	ReasonUnfit   pipeline.Reason = "unfit table entry"
	ReasonFull    pipeline.Reason = "no cell for the lookup"
	ReasonBlocked pipeline.Reason = "no connection for the lookup"
	ReasonLong    pipeline.Reason = "too long for the lookup"
)

// Refuse drops a frame that came in at port `in`, and counts it in n, a field of Stats, and at the
// port. It returns false, which is what Server.Bounce returns for a dropped frame.
func (t *Table) Refuse(c *pipeline.Ctx, in int, f packetio.Frame, n *uint64, r pipeline.Reason) bool {
	*n++
	c.Drop(in, r, f)
	return false
}

// take handles a frame that has arrived. It returns false if the frame is no IP packet.
func (t *Table) take(c *pipeline.Ctx, in int, f packetio.Frame) bool {
	var v view
	if !v.parse(f.Data) {
		return false
	}
	k := t.Hash.keyed(v.key(f.Data, t.Flow))
	if t.balances() {
		if !t.toVIP(&k) {
			return false
		}
	}
	t.stats.Frames++
	if t.removing[k] && v.opens(f.Data) { // TCP sends it again
		t.Refuse(c, in, f, &t.stats.Misses, ReasonEnding)
		return true
	}
	h := t.Hash.sum(&k)
	server, _ := t.Place(h)
	l := t.links[server].srv
	if !l.Busy(h) {
		if e := t.cache.get(&k, h); e != nil && (!t.balances() || t.serves(&e.Action) && t.learning[k].done()) {
			if !e.Action.fits(f.Data, &v) {
				t.Refuse(c, in, f, &t.stats.Unfit, ReasonUnfit)
				return true
			}
			t.stats.Cached++
			t.buf = append(t.buf[:0], f.Data...)
			f.Data = t.buf
			t.apply(c, in, f, &v, &k, &e.Action, "by an entry in the switch")
			return true
		}
	}
	l.Bounce(c, in, f, &k, h)
	return true
}

// Lookup is a frame that waits for its entry, and what was found.
type Lookup struct {
	// Key is the key of the frame, and Hash its hash. The frame came in at port In. A machine
	// with Config.Trusting leaves Key zero: it takes the key of the frame that comes back.
	Key  Key
	Hash uint64
	In   int
	// Found says what was found. If it is Hit, Action is what the entry says.
	Found   Found
	Action  Action
	changes uint64 // value of Table.changes when the READ of the slots was sent
}

// Found is what a lookup has found.
type Found uint8

// Results of a lookup. Unknown means that the slots have not come back yet, Gone that they will not
// come back.
const (
	Unknown Found = iota
	Hit
	Miss
	Torn
	Gone
)

// Done ends the lookup of a frame that has come back. Done may change f.
func (t *Table) Done(c *pipeline.Ctx, l *Lookup, f packetio.Frame) {
	var v view
	switch {
	case len(f.Data) < framering.MinFrame:
		t.stats.Lost++
	case l.Found == Torn:
		t.Refuse(c, l.In, f, &t.stats.Torn, ReasonTorn)
	case t.balances() && (l.Found == Miss || l.Found == Hit) && v.parse(f.Data) && t.learns(l):
		t.learn(c, l, f, &v)
	case l.Found == Miss && t.DropMiss:
		t.Refuse(c, l.In, f, &t.stats.Misses, ReasonMiss)
	case l.Found == Miss:
		t.stats.Misses++
		c.Resume(l.In, -1, f, "looked up: no entry")
	case l.Found != Hit || !v.parse(f.Data):
		t.stats.Lost++
	case !l.Action.fits(f.Data, &v):
		t.Refuse(c, l.In, f, &t.stats.Unfit, ReasonUnfit)
	default:
		t.stats.Hits++
		t.keep(l, t.Hash.keyed(v.key(f.Data, t.Flow)))
		t.apply(c, l.In, f, &v, &l.Key, &l.Action, "by an entry in a server's memory")
	}
}

// learns reports whether the connection of a frame that has come back has no entry that it can use, or
// has one that is being written, for which earlier frames wait, or that was written behind the lookup.
func (t *Table) learns(l *Lookup) bool {
	x := t.learning[l.Key]
	return l.Found == Miss || !t.serves(&l.Action) || x != nil && (!x.written || l.Action != x.action)
}

// keep puts an entry that was found into the cache, unless the cache had to forget entries since
// the READ of its slots was sent. k is the key of the frame that has come back; only a trusting
// machine uses k, and it keeps the entry in any case.
func (t *Table) keep(l *Lookup, k Key) {
	switch {
	case t.m.cfg.Trusting:
		t.cache.put(&k, &l.Action, t.Hash.sum(&k))
	case l.changes == t.changes:
		t.cache.put(&l.Key, &l.Action, l.Hash)
	}
}

// Changed is called when a change of an entry is sent. It counts the change and makes the cache
// forget the entry; lookups that have read the former slots do not fill the cache.
func (t *Table) Changed(k *Key, remove bool) {
	if remove {
		t.stats.Removed++
	} else {
		t.stats.Written++
	}
	t.forget(k)
}

// forget removes the entry of key k from the cache, because the entry has changed or may have
// changed in the servers' memory.
func (t *Table) forget(k *Key) {
	t.changes++
	if x := t.learning[*k]; x != nil && x.written { // the choice for a connection whose entry changes
		delete(t.learning, *k)
	}
	if len(t.Masks) > 0 { // the cache has flows, and the entry may be that of any of them
		t.cache.clear()
		return
	}
	t.cache.remove(k, t.Hash.sum(k))
}

// forgetServer removes the entries of a server from the cache. index is the server's index in
// links.
func (t *Table) forgetServer(index int) {
	t.changes++
	for i := range t.cache.places {
		if server, _ := t.Place(t.Hash.sum(&t.cache.places[i].Key)); server == index {
			t.cache.places[i] = cached{}
		}
	}
	for k, x := range t.learning {
		if server, _ := t.Place(x.hash); x.written && server == index {
			delete(t.learning, k)
		}
	}
}

// Takes reports whether the n changes that wait for a former table may be made in table t, because
// both tables have the same slots. If they have not, Takes counts the n changes as refused in the
// former table. For n = 0 the result is true. t may be nil, and so may former if n is 0.
func (t *Table) Takes(former *Table, n int) bool {
	if n == 0 || t != nil && former != nil && t.sameSlots(&former.Layout) {
		return true
	}
	former.stats.Refused += uint64(n)
	former.why = "the rule has changed, and its table is another one"
	return false
}

// Stats returns the table's counters. A Server of another package increments some of them.
func (t *Table) Stats() *Stats { return &t.stats }

// apply does with a frame with key k what action a of its entry says. It may change the frame.
func (t *Table) apply(c *pipeline.Ctx, in int, f packetio.Frame, v *view, k *Key, a *Action, note string) {
	if a.Ops&OpDrop != 0 {
		t.Refuse(c, in, f, &t.stats.Denied, ReasonDenied)
		return
	}
	if t.balances() {
		t.closes(c.Now, k, v.tcpFlags(f.Data))
	}
	a.apply(&f, v, t.Flow, t.m.cfg.MAC)
	to := -1
	if a.Ops&OpEgress != 0 {
		to = int(a.Egress)
	}
	if c.Observed() {
		note = "looked up: " + a.String() + ", " + note
	}
	c.Resume(in, to, f, note)
}

func (t *Table) inFlight() (n int) {
	for _, l := range t.links {
		n += l.srv.InFlight()
	}
	return n + t.held
}

// waiting returns how many changes of entries have not ended.
func (t *Table) waiting() (n int) {
	for _, l := range t.links {
		n += l.srv.Waiting()
	}
	return n
}
