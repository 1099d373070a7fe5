package fusee

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/fusee/layout"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
)

// guestStage is how far a master has come with making a server a member again.
type guestStage uint8

const (
	// noGuest: the master asks the servers that are no members, one after the other, whether they answer.
	noGuest guestStage = iota
	// clearing: the server is claimed (its MasterWord has this master's number), and its memory is
	// being cleared. Clients are at work meanwhile.
	clearing
	// cleared: the next change of the members fills the server.
	cleared
	// filling: a change of the members is filling the server, and clients wait.
	filling
)

// guest is a server that is no member, and that the master makes a member again.
type guest struct {
	stage  guestStage
	server int
	// off is how many bytes of the server's memory are cleared.
	off uint64
	// turn is the server that the master asks next whether it answers. next is, by server, the
	// earliest time at which the master asks that server again. waits is, by server, how long the
	// master waits after the next failure of that server before it asks again; 0 means two leases.
	turn  int
	next  [layout.MaxServers]clock.Time
	waits [layout.MaxServers]time.Duration
}

// maxWaits is the longest time, in leases, after which a master tries again to fill a server that
// has failed.
const maxWaits = 256

// errGuest: a server that is being filled has failed.
var errGuest = errors.New("a memory server that has come back cannot be filled")

// errForeignMemory: the memory of a server has the data of another store, or of something else.
var errForeignMemory = errors.New("its memory is used for something else")

// errForeignReign: another master has written a view to a server that is no member.
var errForeignReign = errors.New("another master has made a later view there, or one without any of the present members; " +
	"the server is left as it is")

// welcome does the next part of the work of making a server a member again: first it claims the
// server, then it clears the server's memory piece by piece. Meanwhile clients work. When the
// memory is clear, a change of the members fills it, and clients wait until that change has ended.
func (m *Master) welcome() error {
	if m.guest.stage == noGuest {
		return m.visit()
	}
	err := m.clearSome()
	if err != nil {
		m.refuse()
	}
	return err
}

// refuse is called once for each failure of the server in m.guest, which the master makes a member
// again. The master waits before it begins again with that server, each time twice as long. Clients
// wait while a server is filled, so a server that always fails late must not be tried often.
func (m *Master) refuse() {
	g := &m.guest
	g.stage = noGuest
	wait := max(g.waits[g.server], 2*m.c.mem.cfg.Lease)
	g.next[g.server], g.waits[g.server] = m.c.mem.rt.Now().Add(wait), min(2*wait, maxWaits*m.c.mem.cfg.Lease)
}

// judge is called when an attempt to change the members has ended with err. It does nothing if the
// attempt has not begun to fill the server in m.guest. If that server is a member now, judge ends
// the work on it; otherwise judge calls refuse.
func (m *Master) judge(members layout.View, err error) {
	g := &m.guest
	switch {
	case g.stage != filling:
	case err == nil && members.Has(g.server):
		g.stage, g.waits[g.server] = noGuest, 0
	default:
		m.refuse()
	}
}

// visit asks the next server that is no member whether it answers. If it does, visit claims it and
// puts it into m.guest: the master makes this server a member again.
func (m *Master) visit() error {
	g, c := &m.guest, m.c
	for range c.mem.links {
		i := g.turn
		g.turn = (g.turn + 1) % len(c.mem.links)
		if c.mem.view.Has(i) || c.mem.rt.Now() < g.next[i] {
			continue
		}
		g.next[i] = c.mem.rt.Now().Add(m.c.mem.cfg.Lease)
		err := m.greet(i, c.mem.rt.Now().Add(m.c.mem.cfg.Lease/4))
		switch {
		case err == nil:
			g.stage, g.server, g.off = clearing, i, 0
			if m.Filling != nil {
				m.Filling(i)
			}
		case errors.Is(err, errForeignMemory), errors.Is(err, errForeignReign):
			g.server = i
			m.refuse()
			return fmt.Errorf("fill memory server %d: %w", i, err)
		default:
			// The server does not answer, or another master is claiming it: the method visit
			// asks the server again later.
			err = c.mem.fab.Break(i)
		}
		return err
	}
	return nil
}

// greet claims a server that is no member, and has it end all connections except this master's. One
// READ shows the server's view and the number of the last master that has claimed it. If a master
// with a greater number has claimed the server, greet leaves the server as it is.
//
// If this server has the view or the number of another master, that does not prove that this master
// was deposed. Only the members know that, and they end a deposed master's connections. While the
// network was divided, a master that did not reach the members may have made views on this server,
// and clients may have written there. So the memory of a server with such a view is not cleared.
func (m *Master) greet(i int, deadline clock.Time) error {
	c := m.c
	if err := c.mem.fab.Open(i, deadline); errors.Is(err, errReborn) {
		c.mem.links[i].boot = 0
	}
	if err := c.mem.fab.Open(i, deadline); err != nil {
		return err
	}
	v, err := c.mem.viewOf(i, deadline)
	if err != nil && !errors.Is(err, errHostile) {
		return err
	}
	former := uint32(c.mem.wordAt(i, layout.MasterWord))
	// A master on the other side of a divided network may have the same number. So the view must
	// also be one that this master has written or tried to write.
	own := former == c.mem.id && (v == m.words[i] || v == m.tried[i])
	switch {
	case !m.fillable(i):
		return errForeignMemory
	case err != nil:
		return err
	case v.Newer(c.mem.newer), former > c.mem.id, v != 0 && !own && !v.Meets(c.mem.view):
		return errForeignReign
	}
	if err := m.supersede(i, uint64(former), errGuest, deadline); err != nil {
		return err
	}
	found := c.mem.swap(i, layout.ViewWord, uint64(v), 0)
	if err := c.mem.do(deadline); err != nil {
		return err
	}
	if was, err := c.mem.fab.Word(found); err != nil || was != uint64(v) && was != 0 {
		return errors.Join(err, errGuest)
	}
	m.words[i], m.tried[i] = 0, 0
	_, err = memservice.DisconnectOthers(c.mem.cfg.Context, c.mem.cfg.Manager, c.mem.cfg.Servers[i], c.mem.id, deadline)
	return err
}

// fillable reports whether a master may fill server i: the memory is large enough, and it was lost
// or belongs to this store. The beginning of the memory must have been read by viewOf.
func (m *Master) fillable(i int) bool {
	c := m.c
	if uint64(c.mem.links[i].mem.Len) < c.space.super.Shape.Len() {
		return false
	}
	head, err := c.mem.bytes(nil, atViews+viewLen*i, layout.SuperblockLen)
	if err != nil {
		return false
	}
	var s layout.Superblock
	if s.Parse(head) == nil {
		want := c.space.super
		want.Server = i
		return s == want
	}
	return !slices.ContainsFunc(head, func(b byte) bool { return b != 0 })
}

// clearSome continues to clear the memory of the server in m.guest. Each call returns after an
// eighth of the lease, but at least 50 ms, or when all of the memory is clear. clearSome leaves the
// word with the master's number as it is.
func (m *Master) clearSome() error {
	g, c := &m.guest, m.c
	size := c.space.super.Shape.Len()
	until := c.mem.rt.Now().Add(max(c.mem.cfg.Lease/8, minPatience/2))
	if err := c.mem.put(make([]byte, piece), atIn); err != nil {
		return err
	}
	for g.off < size {
		if c.mem.rt.Now() >= until {
			return nil
		}
		for range fillPieces {
			n := min(piece, size-g.off)
			if g.off == 0 {
				n = layout.MasterWord
			}
			if c.mem.write(g.server, g.off, atIn, int(n)); g.off == 0 {
				n += 8
			}
			if g.off += n; g.off >= size {
				break
			}
		}
		if err := m.guestDo(); err != nil {
			return err
		}
	}
	g.stage = cleared
	return nil
}

// fillPieces is how many pieces of memory, of 32 KiB each, are in flight at a time.
const fillPieces = 7

// guestDo executes a batch of operations on the server in m.guest, which the master fills. Any
// failure is an errGuest.
func (m *Master) guestDo() error {
	m.notice(m.c.mem.rt.Now())
	err := m.c.mem.do(m.c.mem.rt.Now().Add(m.c.mem.cfg.patience()))
	m.notice(m.c.mem.rt.Now())
	if err != nil {
		return fmt.Errorf("%w: memory server %d: %w", errGuest, m.guest.server, err)
	}
	return nil
}

// patience is how long a server may take to answer during a change of the members, and while the
// master clears or fills the server in Master.guest.
func (c *Config) patience() time.Duration { return max(2*c.Lease, minPatience) }

// admit copies to the server in m.guest all that it must have as a member, if its memory was
// cleared. This happens in the middle of a change to the view `next`, while no client is at work.
// admit returns the view that is to be written in the state Settled: next with that server, or next
// alone if there is no such server or it fails.
func (m *Master) admit(next layout.View) (layout.View, error) {
	g := &m.guest
	settled := next.As(layout.Settled)
	if g.stage != cleared {
		return settled, nil
	}
	g.stage = filling
	err := m.fill(g.server, next)
	switch {
	case err == nil:
		m.standby.known[g.server] = false
		m.signs[g.server] = sign{since: m.c.mem.rt.Now(), claimed: true}
		return settled.With(g.server), nil
	case errors.Is(err, errGuest) && !m.c.mem.fenced:
		m.report(err)
		return settled, nil
	}
	return settled, err
}

// filler copies to server `to` the parts of the store that it must have as a member.
type filler struct {
	master *Master
	to     int
	// next is when the master shows its standby again that it is alive.
	next clock.Time
}

// fill writes to server i all that it must have as a member: the index, replicas of objects, and
// block tables. The block table of its area 0 was lost, and fill makes it from the copies on other
// servers. A copy does not say which client owns a block, so afterwards the blocks of the server
// have no owner.
func (m *Master) fill(i int, members layout.View) error {
	f := &filler{master: m, to: i}
	shape := &m.c.space.super.Shape
	if err := f.head(members.Epoch()); err != nil {
		return err
	}
	if i < shape.IndexReplicas {
		from := shape.EntryAt(0)
		end := shape.SubtableAt(shape.Subtables-1) + shape.SubtableLen()
		if err := f.copy(m.c.space.root(), from, from, end-from); err != nil {
			return err
		}
	}
	for j := range shape.Replicas {
		if err := f.area(j); err != nil {
			return err
		}
	}
	return nil
}

// head writes the superblock and the next three words (JoinWord, ClientWord and DoubtWord) to the
// server that is filled.
func (f *filler) head(epoch uint32) error {
	c := f.master.c
	words := []uint64{uint64(epoch)}
	for _, at := range []uint64{layout.ClientWord, layout.DoubtWord} {
		v, err := c.space.slotAt(c.space.root(), at, c.mem.rt.Now().Add(c.mem.cfg.patience()))
		if err != nil {
			return err
		}
		words = append(words, uint64(v))
	}
	var b [layout.SuperblockLen]byte
	s := c.space.super
	s.Server = f.to
	s.Put(b[:])
	raw := b[:]
	for _, w := range words {
		raw = binary.LittleEndian.AppendUint64(raw, w)
	}
	if err := c.mem.put(raw, atIn); err != nil {
		return err
	}
	c.mem.write(f.to, 0, atIn, len(raw))
	return f.master.guestDo()
}

// area copies area j, and the block table of this area, from other servers to the server f.to. The
// area has the replicas of the objects whose first replica is on the server j places before f.to.
func (f *filler) area(j int) error {
	shape := &f.master.c.space.super.Shape
	first := (f.to - j + shape.Servers) % shape.Servers
	server, table := first, shape.BlockTable(0)
	for k := 1; !f.master.c.mem.has(server) && k < shape.Replicas; k++ {
		server, table = (first+k)%shape.Servers, shape.BlockTable(k)
	}
	words, err := f.all(server, table, 8*shape.Blocks)
	if err != nil {
		return err
	}
	bitmap := shape.PlaceOf(0, 0, 1)
	for n := range shape.Blocks {
		use := layout.BlockUse(binary.LittleEndian.Uint64(words[8*n:])).Copy()
		binary.LittleEndian.PutUint64(words[8*n:], uint64(use))
		if use == 0 {
			continue
		}
		place := uint64(n)*uint64(shape.BlockUnits) + bitmap
		from, off := f.master.c.space.replica(first, place)
		_, to := shape.Replica(first, place, j)
		if err := f.copy(from, off, to, (uint64(shape.BlockUnits)-bitmap)*layout.Unit); err != nil {
			return err
		}
	}
	return f.put(shape.BlockTable(j), words)
}

// read executes a batch of READs. From time to time it also shows the standby that the master is alive.
func (f *filler) read() error {
	c := f.master.c
	now := c.mem.rt.Now()
	if f.master.notice(now); now >= f.next {
		f.next = now.Add(c.mem.cfg.Lease / 4)
		if err := c.mem.put(binary.LittleEndian.AppendUint64(nil, f.master.standby.beat()[0]), atTold); err != nil {
			return err
		}
		for i := range c.mem.servers(c.mem.view) {
			c.mem.write(i, layout.ReignWord, atTold, 8)
		}
	}
	return c.mem.do(now.Add(c.mem.cfg.patience()))
}

// all reads n bytes at offset off of a member.
func (f *filler) all(server int, off uint64, n int) ([]byte, error) {
	var out []byte
	for len(out) < n {
		some := min(piece, n-len(out))
		f.master.c.mem.read(server, off+uint64(len(out)), atIn, some)
		if err := f.read(); err != nil {
			return nil, err
		}
		b, err := f.master.c.mem.bytes(nil, atIn, some)
		if err != nil {
			return nil, err
		}
		out = append(out, b...)
	}
	return out, nil
}

// put writes b to offset `off` of the server that is filled.
func (f *filler) put(off uint64, b []byte) error {
	return f.master.c.mem.pieces(f.to, off, b, f.master.guestDo)
}

// copy copies n bytes from offset `off` of a member to offset `to` of the server that is filled.
func (f *filler) copy(server int, off, to, n uint64) error {
	c := f.master.c
	for n > 0 {
		some := min(n, fillPieces*piece)
		for at := uint64(0); at < some; at += piece {
			c.mem.read(server, off+at, atIn+int(at), int(min(piece, some-at)))
		}
		if err := f.read(); err != nil {
			return err
		}
		for at := uint64(0); at < some; at += piece {
			c.mem.write(f.to, to+at, atIn+int(at), int(min(piece, some-at)))
		}
		if err := f.master.guestDo(); err != nil {
			return err
		}
		off, to, n = off+some, to+some, n-some
	}
	return nil
}
