package lookuptable

import (
	"bytes"
	"fmt"
	"net/netip"
	"slices"

	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// MaxWaiting is how many changes of entries a server can have that have not ended.
const MaxWaiting = 4096

// maxSpan is how many slots the switch reads at most to change one entry. So many slots fit into a
// READ response of the largest path MTU, 4096 bytes.
const maxSpan = 64

// Writer changes entries in a server's memory. The control plane calls it.
type Writer interface {
	// Change begins to add an entry, or to remove the entry with the same key. h is the hash of the
	// key. Change returns false if too many changes wait.
	Change(e *Entry, h uint64, remove bool) bool
	// Waiting returns how many changes have not ended.
	Waiting() int
	// Scan begins to read slots, the first of which is `from`, unless slots are being read already.
	// Page returns the slots that were read last, and returns them only once; nil means that there
	// are none, or that a change has ended since.
	Scan(from int)
	Page() *Page
}

// Page is a part of a table.
type Page struct {
	// From is the first slot. Next is the slot behind the last one.
	From, Next int
	Entries    []Entry
}

// change is a change of an entry, or (scan) the reading of slots.
type change struct {
	Entry
	remove, scan bool
	learn        bool   // the entry of a new connection to a virtual address
	end          bool   // the entry of a connection that has ended
	refused      bool   // the table has no room for it
	sent         bool   // its WRITEs were sent, perhaps on a connection that has failed
	id           uint32 // names the change in the tags of its requests
	home         int    // the first slot to read: the home slot of the entry, or where a scan begins
	state        changeState
	bytes        []byte // the slots that were read
	left         int    // WRITEs without an answer
	lost         bool   // a WRITE may be lost
}

// changeState says how far a change is: its slots are being read, have come, or are being written.
type changeState uint8

const (
	reading changeState = iota
	came
	writing
)

// writer makes the changes of entries in the memory of one server, several at a time unless they
// are about the same slots. It is a part of a bouncer (the Server of the hardened handler). If a
// connection fails, the bouncer makes the changes that have not ended again on the next connection.
type writer struct {
	queue   []change    // changes that have not begun
	running []change    // changes whose slots were asked for
	id      uint32      // id of the change that began last
	page    *Page       // what Page returns next
	writes  []slotWrite // scratch
}

func (w *writer) Waiting() int { return len(w.queue) + len(w.running) }

func (w *writer) Page() *Page {
	p := w.page
	w.page = nil
	return p
}

func (b *bouncer) Change(e *Entry, h uint64, remove bool) bool {
	if b.Waiting() >= MaxWaiting {
		return false
	}
	_, home := b.table.Place(h)
	b.queue = append(b.queue, change{Entry: *e, remove: remove, home: home})
	return true
}

// learn begins to write the entry of a new connection. The table is told when the server has it. It
// returns false if too many changes wait.
func (b *bouncer) learn(e *Entry, h uint64) bool {
	if !b.Change(e, h, false) {
		return false
	}
	b.queue[len(b.queue)-1].learn = true
	return true
}

// end begins to remove the entry of a connection that has ended. The table is told when the server has it no
// more. It returns false if too many changes wait.
func (b *bouncer) end(k *Key, h uint64) bool {
	if !b.Change(&Entry{Key: *k}, h, true) {
		return false
	}
	b.queue[len(b.queue)-1].end = true
	return true
}

func (b *bouncer) Scan(from int) {
	scans := func(x change) bool { return x.scan }
	if !slices.ContainsFunc(b.queue, scans) && !slices.ContainsFunc(b.running, scans) {
		b.queue = append(b.queue, change{scan: true, home: from})
	}
}

// change makes progress with the changes: it sends the WRITEs of changes whose slots have been
// read, ends changes whose WRITEs have been answered, and begins changes that wait.
func (b *bouncer) change(c *pipeline.Ctx) {
	if b.Waiting() == 0 {
		return
	}
	for i := 0; i < len(b.running); i++ {
		x := &b.running[i]
		if x.state == came && b.Up() && (x.scan || b.Writes() >= maxSpan) {
			b.apply(c, x)
		}
		switch {
		case x.state == writing && x.left == 0 && x.lost || x.state == came && x.bytes == nil:
			b.queue = slices.Insert(b.queue, 0, x.again())
		case x.state == writing && x.left == 0:
			if !x.scan {
				b.page = nil // the page has the slots as they were before the change
			}
			if x.learn {
				b.table.learnt(c, &x.Key, !x.refused)
			}
			if x.end {
				delete(b.table.removing, x.Key)
			}
		default:
			continue
		}
		b.running = slices.Delete(b.running, i, i+1)
		i--
	}
	for len(b.queue) > 0 && len(b.running) < max(1, b.table.Depth/2) && b.Reads() && !b.near(b.queue[0].home) {
		x := b.queue[0]
		b.queue = b.queue[1:]
		b.id++
		x.id = b.id
		b.running = append(b.running, x)
		n := min(maxSpan, b.mtu/SlotLen, b.table.Slots()-x.home)
		b.read(c, b.table.At(x.home), n*SlotLen, ofSpan, x.id)
	}
}

// again returns the change in its first state, so that it can be made again.
func (x *change) again() change {
	return change{Entry: x.Entry, remove: x.remove, scan: x.scan, learn: x.learn, end: x.end, sent: x.sent, home: x.home}
}

// unfinished returns the changes that have not ended, the oldest first.
func (w *writer) unfinished() (list []change) {
	for _, x := range slices.Concat(w.running, w.queue) {
		if !x.scan {
			list = append(list, x.again())
		}
	}
	return list
}

// near reports whether a running change may use slots that a change with this home slot needs.
func (w *writer) near(home int) bool {
	return slices.ContainsFunc(w.running, func(x change) bool { return x.home-home < maxSpan && home-x.home < maxSpan })
}

func (w *writer) find(id uint32) *change {
	i := slices.IndexFunc(w.running, func(x change) bool { return x.id == id })
	if i < 0 {
		return nil
	}
	return &w.running[i]
}

// span is called with the bytes of the slots that a change has read. b is nil if the READ failed.
func (w *writer) span(id uint32, b []byte) {
	if x := w.find(id); x != nil && x.state == reading {
		x.state, x.bytes = came, bytes.Clone(b)
	}
}

// wrote is called when a WRITE of a change has ended. ok is false if it may be lost.
func (w *writer) wrote(id uint32, ok bool) {
	if x := w.find(id); x != nil {
		x.left--
		x.lost = x.lost || !ok
	}
}

// apply writes the slots of a change whose slots were read. For a scan it writes nothing, and makes
// a Page of the entries in these slots.
func (b *bouncer) apply(c *pipeline.Ctx, x *change) {
	if x.bytes == nil {
		return
	}
	t := b.table
	x.state = writing
	if x.scan {
		b.page = pageOf(x.home, x.bytes)
		return
	}
	list, err := plan(b.writes[:0], x.bytes, &x.Entry, x.remove, x.home, func(k *Key) int {
		_, home := t.Place(t.Hash.sum(k))
		return home
	})
	b.writes = list
	switch {
	case err != nil && x.sent && x.remove: // a WRITE without an answer has removed the entry
		return
	case err != nil && x.end: // a command has removed the entry
		return
	case err != nil:
		x.refused = true
		t.forget(&x.Key) // the table does not have it
		t.stats.Refused++
		t.why = err.Error()
		return
	case x.sent:
		t.forget(&x.Key)
	case x.learn: // there was no entry, or one that the cache may not use
		t.stats.Written++
		t.forget(&x.Key)
	default:
		t.Changed(&x.Key, x.remove)
	}
	x.sent = true
	x.left = len(list)
	for i := range list {
		b.write(c, t.At(x.home+list[i].index), list[i].bytes[:], x.id)
	}
}

func pageOf(from int, b []byte) *Page {
	p := &Page{From: from, Next: from + len(b)/SlotLen}
	var e Entry
	for ; len(b) >= SlotLen; b = b[SlotLen:] {
		if parseSlot(b, &e) == slotUsed {
			p.Entries = append(p.Entries, e)
		}
	}
	return p
}

func (m *Machine) table(rule string) (*Table, error) {
	for _, t := range m.tables {
		if t.id == rule {
			return t, nil
		}
	}
	return nil, fmt.Errorf("rule %.40s has no table, because its server or the servers in %s are no hosts of the rack", rule, keyTable)
}

// Change begins to write the entries of in.Entries to the table of rule in.Rule or, if in.Remove is
// true, to remove them: as many as there is room for, from the first on. It does not wait until
// these changes have ended. out.Taken says how many there are; the other counts of out include
// earlier changes. If one of the texts is no valid entry, Change changes none.
func (m *Machine) Change(c *pipeline.Ctx, in handler.Entries, address func(string) (netip.Addr, error)) (out handler.EntriesReport, err error) {
	t, err := m.table(in.Rule)
	if err != nil {
		return out, err
	}
	list := make([]Entry, len(in.Entries))
	for i, text := range in.Entries {
		if list[i], err = t.ParseEntry(text, address, m.port); err != nil {
			return out, err
		}
	}
	for i := range list {
		if !t.change(&list[i], in.Remove) {
			break
		}
		out.Taken++
	}
	for _, l := range t.links {
		l.srv.Work(c)
		if !l.srv.Up() {
			out.Down = fmt.Sprintf("%v: %s", l.Key().Server, l.Why())
		}
	}
	out.Waiting, out.Why = t.waiting(), t.why
	out.Written, out.Removed, out.Refused = t.stats.Written, t.stats.Removed, t.stats.Refused
	return out, nil
}

// change begins to change an entry. It returns false if too many changes wait.
func (t *Table) change(e *Entry, remove bool) bool {
	h := t.Hash.sum(&e.Key)
	server, _ := t.Place(h)
	return t.links[server].srv.Change(e, h, remove)
}

// Page returns the entries of a server from slot `from` on. Until they were read, the result is not
// Ready, and the caller asks again.
func (m *Machine) Page(c *pipeline.Ctx, rule string, server, from int) (out handler.EntriesPage, err error) {
	t, err := m.table(rule)
	switch {
	case err != nil:
		return out, err
	case server < 0 || server >= len(t.links) || from < 0 || from >= t.Slots():
		return out, fmt.Errorf("slot %d of server %d: the rule has %d servers with %d slots", from, server, len(t.links), t.Slots())
	}
	l := t.links[server]
	if !l.srv.Up() {
		return out, fmt.Errorf("there is no connection to %v: %s", l.Key().Server, l.Why())
	}
	p := l.srv.Page()
	if p == nil || p.From != from {
		l.srv.Scan(from)
		l.srv.Work(c)
		return out, nil
	}
	out = handler.EntriesPage{Ready: true, Server: server, From: p.Next}
	for i := range p.Entries {
		out.Entries = append(out.Entries, t.Text(&p.Entries[i]))
	}
	if p.Next >= t.Slots() {
		out.Server, out.From, out.End = server+1, 0, server+1 == len(t.links)
	}
	return out, nil
}
