package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/remotemem"
	"github.com/rdmalab/rdmalab/store/kv"
)

const (
	// viewLease is how long a client uses its view before it reads the views of all members again.
	// A master that changes the members waits for viewLease before it changes anything that a
	// client reads.
	viewLease = 10 * time.Millisecond
	// joinPatience is how long one attempt to connect to a member takes at most, because the member
	// may have crashed.
	joinPatience = 200 * time.Millisecond
	// glancePause is how long a client waits for a change of the members after an operation has
	// failed.
	glancePause = 2 * time.Millisecond
	// meetPatience is how long one attempt to read the superblock of a server takes at most,
	// because the server may have crashed.
	meetPatience = 400 * time.Millisecond
)

// errView means that a master changes the members of the store, or has changed them. The outcome of
// a request in flight is unknown until the client uses the new view (see space.follow).
var errView = fmt.Errorf("%w: the members of the store have changed", kv.ErrTimeout)

// errGone means that some part of the store has no replica on any member.
var errGone = fmt.Errorf("%w: too many memory servers of the store have crashed", kv.ErrLost)

// errHostile means that the view word of a memory server has a value that is no view of the store.
var errHostile = fmt.Errorf("%w: the word with the members of the store is damaged", kv.ErrLost)

// errReborn means that the memory service of a server has restarted since this client connected to
// it, or that the server's memory has no view. The client then assumes that the memory is lost and
// that the server is no longer a member, unless the server has a later view of the store (see
// peek).
var errReborn = errors.New("the memory server has lost its memory")

// members is what a client knows of the servers that belong to the store.
//
// A client reads the view on each new connection, before it sends anything else there. The master
// ends all connections when it prepares a change; so no request of a client that does not know of
// the change is executed by a server that remains. A server that does not remain may be out of the
// master's reach and still answer clients. So in a store with a master, what a client reads from any
// server counts only until viewLease has passed since the client last began to read the views of all
// members. After that the client reads these views again, before it uses what it has just read
// (confirm).
type members struct {
	// view is the view that the operations of this client use; 0 means that it is not known yet.
	// newer is the latest view that the client has read; it differs from view if a master has
	// changed the members since.
	view, newer layout.View
	// until is the time to which the client may use its view before it reads the views of the
	// members again.
	until clock.Time
	// exempt is true for a master, which changes the view itself, and for its standby: neither
	// needs a lease of the view. awaits is true for a client that becomes the standby. A master and
	// such a client may begin also in the middle of a change of the members.
	exempt, awaits bool
	// missing are the members, as bits, that did not answer this master when it began.
	missing uint32
	// managed is true if a master has ever taken charge of the store.
	managed bool
	// joined is, by server, the epoch in which the server has become a member again
	// (layout.JoinWord).
	joined [layout.MaxServers]uint32
	// departed are the servers, as bits, on which the client has lost its blocks by the last change
	// of the view.
	departed uint32
	// generation is the random number that identifies the store (layout.Superblock); 0 means that
	// it is not known yet.
	generation uint64
	// viewOps and list are memory for the READs of views.
	viewOps [layout.MaxServers]remotemem.Op
	list    []*remotemem.Op
}

// has reports whether operations use a server: it is a member of the client's view, or the client
// has no view yet.
func (m *memory) has(server int) bool { return m.view == 0 || m.view.Has(server) }

// servers returns the servers that are members of view v.
func (m *memory) servers(v layout.View) iter.Seq[int] {
	return func(yield func(int) bool) {
		for i := range m.links {
			if v.Has(i) && !yield(i) {
				return
			}
		}
	}
}

// attach is called before the requests of m's batch are posted. It connects to the servers to which
// they go, and reads the view over each connection that it has made.
func (m *memory) attach(deadline clock.Time) error {
	switch {
	case m.view == 0 || m.exempt:
		return nil
	case m.newer != m.view:
		return errView
	}
	for _, o := range m.batch {
		if err := m.join(o.Peer, deadline); err != nil {
			return err
		}
	}
	return nil
}

// join connects to a server, unless it is connected, and reads the view there.
func (m *memory) join(i int, deadline clock.Time) error {
	if m.fab.Connected(i) {
		return nil
	}
	limit := deadline
	if len(m.links) > 1 {
		limit = min(deadline, m.rt.Now().Add(joinPatience))
	}
	if err := m.fab.Open(i, limit); err != nil {
		return err
	}
	v, err := m.viewOf(i, limit)
	if err == nil {
		err = m.see(v)
	}
	if err != nil {
		return errors.Join(err, m.fab.Break(i))
	}
	return nil
}

// peek reads the view of a server that may have lost its memory and become a member again since
// this client has connected to it. Another incarnation of the memory service counts only if its
// memory belongs to the store and has a later view than `after`; otherwise the error is errReborn.
func (m *memory) peek(i int, after layout.View, deadline clock.Time) (v layout.View, err error) {
	l := &m.links[i]
	was := l.boot
	err = m.fab.Open(i, deadline)
	reborn := errors.Is(err, errReborn)
	if reborn {
		l.boot = 0
		err = m.fab.Open(i, deadline)
	}
	if err == nil {
		v, err = m.viewOf(i, deadline)
	}
	switch {
	case !reborn || errors.Is(err, errFenced):
		return v, err
	case err != nil && !errors.Is(err, errHostile):
		// The view could not be read, so the error does not say that the memory was lost.
	case err != nil || !v.Newer(after) || !m.belongs(i):
		err = errReborn
	default:
		return v, nil
	}
	l.boot = was
	return 0, errors.Join(err, m.fab.Break(i))
}

// belongs reports whether the memory of server i belongs to the store: viewOf, which has read the
// view last, has found the store's generation in the superblock.
func (m *memory) belongs(i int) bool {
	return m.wordAt(i, generationWord) == m.generation && m.generation != 0
}

// generationWord is the offset of the generation in a superblock.
const generationWord = 8

// wordAt returns the word at offset `at` of server i, as viewOf has read it last, together with the
// view.
func (m *memory) wordAt(i int, at int) uint64 {
	var b [8]byte
	if m.fab.MR().ReadAt(b[:], atViews+viewLen*i+at) != nil {
		return 0
	}
	return binary.LittleEndian.Uint64(b[:])
}

func (m *memory) viewOf(i int, deadline clock.Time) (layout.View, error) {
	o := &m.viewOps[i]
	m.fab.Read(o, m.target(i, 0), atViews+viewLen*i, viewLen)
	if err := m.fab.Do(deadline, o); err != nil {
		return 0, err
	}
	v := m.viewAt(i)
	if !v.Valid(len(m.links)) {
		return v, errHostile
	}
	return v, nil
}

// viewAt returns the view of server i, as it was read last.
func (m *memory) viewAt(i int) layout.View { return layout.View(m.wordAt(i, layout.ViewWord)) }

// see compares view v, which the client has read, with its own. It returns nil if they are the
// same, errView if v is newer, and errGone if v says that the store has ended.
func (m *memory) see(v layout.View) error {
	m.managed = m.managed || v.Mastered()
	switch {
	case v == m.view:
		return nil
	case v.State() == layout.Gone:
		return errGone
	case v.Epoch() > m.view.Epoch():
		m.newer = v
		return errView
	}
	return errors.New("the server does not have the present view of the members yet")
}

// confirm does nothing while the lease of the client's view lasts. When the lease is over, confirm
// reads the views of all members. If all of them are the client's view, confirm extends the lease;
// otherwise it returns the error of the method `see` for the first view that differs.
func (m *memory) confirm(deadline clock.Time) error {
	if m.view == 0 || m.exempt || !m.managed || m.rt.Now() < m.until {
		return nil
	}
	asked := m.rt.Now()
	m.list = m.list[:0]
	for i := range m.servers(m.view) {
		if err := m.join(i, deadline); err != nil {
			return err
		}
		m.fab.Read(&m.viewOps[i], m.target(i, layout.ViewWord), atViews+viewLen*i+layout.ViewWord, 8)
		m.list = append(m.list, &m.viewOps[i])
	}
	if err := m.fab.Do(deadline, m.list...); err != nil {
		return err
	}
	for _, o := range m.list {
		if err := m.see(m.viewAt(o.Peer)); err != nil {
			return err
		}
	}
	m.until = asked.Add(viewLease)
	return nil
}

// glance reads the views of all members that answer, after an operation has failed: one of them may
// have crashed. If a member is silent, glance also reads the views of the servers that are no
// members: perhaps the members have changed. certain means that each member has the view of this
// client, or has lost its memory: then no master has changed the members.
func (m *memory) glance(deadline clock.Time) (certain bool, err error) {
	if m.view == 0 || m.exempt {
		return true, nil
	}
	silent := false
	certain = true
	for i := range m.servers(m.view) {
		v, err := m.peek(i, m.view, min(deadline, m.rt.Now().Add(joinPatience)))
		if silent = silent || err != nil; err == nil {
			err = m.see(v)
		}
		if errors.Is(err, errView) || errors.Is(err, kv.ErrLost) {
			return false, err
		}
		certain = certain && (err == nil || errors.Is(err, errReborn))
		if err != nil {
			if err := m.fab.Break(i); err != nil {
				return false, err
			}
		}
	}
	if silent {
		if err := m.see(m.elsewhere(m.view, deadline)); errors.Is(err, errView) || errors.Is(err, kv.ErrLost) {
			return false, err
		}
	}
	if m.managed {
		m.rt.Sleep(glancePause)
	}
	return certain, nil
}

// claimed reports whether a master has claimed a server that is no member, in order to fill it.
func (m *memory) claimed(i int, deadline clock.Time) bool {
	l := &m.links[i]
	was := l.boot
	l.boot = 0
	err := m.fab.Open(i, deadline)
	if err == nil {
		_, err = m.viewOf(i, deadline)
	}
	l.boot = was
	return errors.Join(err, m.fab.Break(i)) == nil && m.wordAt(i, layout.MasterWord) != 0
}

// elsewhere reads the views of the servers that are no members of view v, and returns the latest
// one, or v.
func (m *memory) elsewhere(v layout.View, deadline clock.Time) layout.View {
	latest := v
	for i := range m.links {
		if v.Has(i) {
			continue
		}
		other, err := m.peek(i, latest, min(deadline, m.rt.Now().Add(joinPatience)))
		if err == nil && other.Newer(latest) && m.belongs(i) {
			latest = other
		}
		_ = m.fab.Break(i)
	}
	return latest
}

// settled waits until a change of the members has ended and all members know that. Then it returns
// the view. A server that has become a member again gets the view last.
func (m *memory) settled(deadline clock.Time) (layout.View, error) {
	for {
		latest, silent := m.newer, false
		var views [layout.MaxServers]layout.View
		for i := range m.servers(m.newer) {
			v, err := m.peek(i, m.view, min(deadline, m.rt.Now().Add(joinPatience)))
			if errors.Is(err, errFenced) {
				return 0, kv.TimedOut(err)
			}
			if err != nil {
				silent = true
				continue
			}
			if views[i] = v; v.Newer(latest) {
				latest = v
			}
		}
		if silent {
			latest = m.elsewhere(latest, deadline)
		}
		m.newer = latest
		switch {
		case latest.State() == layout.Gone:
			return 0, m.see(latest)
		case latest.State() == layout.Settled && m.agreed(latest, &views):
			return latest, nil
		case m.rt.Now() >= deadline:
			return 0, kv.TimedOut(errView)
		}
		m.rt.Sleep(pause)
	}
}

// agreed reports whether all members of view v have this view; `views` has the view that was read
// from each server. If so, it notes in m.joined the epoch in which each server last became a member
// again.
func (m *memory) agreed(v layout.View, views *[layout.MaxServers]layout.View) bool {
	for i := range m.servers(v) {
		if views[i] != v {
			return false
		}
	}
	for i := range m.servers(v) {
		m.joined[i] = uint32(m.wordAt(i, layout.JoinWord))
	}
	return true
}

// follow goes on with the members of a new view. The client loses its blocks on two kinds of
// servers: servers that are no longer members, and servers that have lost their memory and become
// members again since the client's last view. The objects of these blocks remain readable until
// they are replaced.
func (s *space) follow(deadline clock.Time) error {
	asked := s.mem.rt.Now()
	v, err := s.mem.settled(deadline)
	if err != nil {
		return err
	}
	for i := range s.mem.links {
		// End connections to servers that are no members. The client must not use such a connection
		// if the server becomes a member again, because it reads the view only on new connections.
		if !v.Has(i) {
			if err := s.mem.fab.Break(i); err != nil {
				return err
			}
		}
	}
	s.use(v)
	s.mem.until = asked
	return nil
}

// following calls f. If f returns errView, following waits until the change of the members has
// ended, and calls f again. So f must be safe to repeat.
func (c *changer) following(deadline clock.Time, f func() error) error {
	for {
		err := f()
		if !errors.Is(err, errView) {
			return err
		}
		if err := c.follow(deadline); err != nil {
			return err
		}
	}
}

// use makes v the view that the client's operations use, and forgets the client's blocks on servers
// that have lost them.
func (s *space) use(v layout.View) {
	was := s.mem.view
	s.mem.view, s.mem.newer, s.mem.managed = v, v, s.mem.managed || v.Mastered()
	s.mem.generation, s.mem.departed = s.super.Generation, 0
	for i := range s.mem.links {
		if !v.Has(i) || was != 0 && s.mem.joined[i] > was.Epoch() {
			s.mem.departed |= 1 << i
			s.requests.asked[i].open = false
		}
	}
	s.index = s.index[:0]
	for i := range s.super.Shape.IndexReplicas {
		if v.Has(i) && s.mem.missing>>i&1 == 0 {
			s.index = append(s.index, i)
		}
	}
	lost := func(server int) bool { return s.mem.departed>>server&1 == 1 }
	gone := func(o object) bool { return lost(o.server) }
	for id, b := range s.blocks {
		if lost(id.server) {
			delete(s.blocks, id)
		}
		b.hints, b.swept = true, ^uint64(0) // FETCH_ADDs by which clients freed objects may have been lost
	}
	for _, c := range s.classes {
		c.blocks = slices.DeleteFunc(c.blocks, func(b *block) bool { return lost(b.server) })
		c.queue = slices.DeleteFunc(c.queue, gone)
	}
	s.unsure = slices.DeleteFunc(s.unsure, gone)
	s.limbo = slices.DeleteFunc(s.limbo, func(l limbo) bool { return lost(l.server) })
	s.frees = slices.DeleteFunc(s.frees, func(r layout.Ref) bool { return lost(r.Server) })
}

// root returns the server with the primary of the index.
func (s *space) root() int { return s.index[0] }

// replica returns the server and the offset of an object's first replica that is on a member.
// server and place are those of replica 0, whose server may be no member any more.
func (s *space) replica(server int, place uint64) (at int, off uint64) {
	shape := &s.super.Shape
	for j := range shape.Replicas {
		if at, off = shape.Replica(server, place, j); s.mem.has(at) {
			return at, off
		}
	}
	return at, off
}

// resolve finds out, after the members have changed, what has become of a change that was in
// flight. All replicas of the slot are alike now, and no request that this client has sent before
// is executed later. A split may have moved the key from the slot since then: it has moved the new
// object if the change has won, or the old one.
func (c *changer) resolve(ch change, deadline clock.Time) (result, error) {
	for {
		if err := c.follow(deadline); err != nil {
			return result{}, ended(err)
		}
		slot, err := c.space.slotAt(c.space.root(), ch.at, deadline)
		if err == nil && slot == ch.new && ch.again != nil {
			ch.again()
			err = c.mem.do(deadline)
		}
		format := c.space.super.Shape.Format
		switch {
		case errors.Is(err, errView):
			continue
		case err != nil:
			return result{}, ended(err)
		case slot == ch.new:
			return result{won: true}, nil
		case ch.log.Op == layout.OpInsert: // no other client replaces or moves an object that is pending
			return result{}, errors.Join(errChanged, kv.ErrNoEffect)
		case format.Vacated(slot, ch.new):
			return result{won: true}, nil
		case slot == ch.old, format.Vacated(slot, ch.old):
			return result{}, errors.Join(errChanged, kv.ErrNoEffect)
		}
		return result{observed: slot}, errReplaced
	}
}

// ended returns the error of an operation that ends because of err and is not repeated: its outcome
// is unknown.
func ended(err error) error {
	if errors.Is(err, errView) || errors.Is(err, errChanged) {
		return kv.ErrTimeout
	}
	return kv.TimedOut(err)
}

// remains is called if the members have changed after an INSERT has put its object into a slot. It
// reads the buckets again, and returns errChanged if the slot no longer names the object.
func (c *changer) remains(own entry, h layout.Hash, set int, deadline clock.Time) error {
	for {
		if err := c.follow(deadline); err != nil {
			return ended(err)
		}
		slot, err := c.space.slotAt(c.space.root(), own.at, deadline)
		if err == nil {
			c.index.readBuckets(h, set)
			err = c.mem.do(deadline)
		}
		switch {
		case errors.Is(err, errView):
			continue
		case err == nil && slot != own.slot:
			return errChanged
		}
		return err
	}
}

// errReplaced: while the members changed, the slot has got the value of another change. It is not
// known whether the client's own change had taken place before that.
var errReplaced = fmt.Errorf("%w: whether the change took place is not known", kv.ErrTimeout)
