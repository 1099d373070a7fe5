package lookuptable

import (
	"slices"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/memgrant"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/lookuptable"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

var Kind = handler.Kind{Name: "lookup published", Actions: []rules.Action{lookuptable.Lookups}, Mode: rules.Published, Listings: lookuptable.Kind.Listings}

func init() {
	Kind.New = func(e *handler.Env) handler.Handler {
		return lookuptable.New(lookuptable.Config{
			Kind: &Kind, Port: e.Port, MAC: e.MAC, Missing: e.Missing, Trusting: true,
			Server: func(l *lookuptable.Link, _ uint32) lookuptable.Server { return &server{link: l} },
		})
	}
}

// pageSlots is how many slots a page of a listing has.
const pageSlots = 64

// server is the part of a table on one server. A slot is followed by the cell for frames whose key
// has this slot.
type server struct {
	extmem.Blind
	pipeline.NoTimer
	link  *lookuptable.Link
	table *lookuptable.Table // nil means that no table needs the server
	// waits are the READs without an answer, in their order. The first `asked` of them are in flight,
	// at most depth; the others were not sent yet.
	waits    []read
	asked    int
	depth    int
	changes  []change
	scanned  lookuptable.Page // the page of a listing that is being read, as far as it was read
	page     *lookuptable.Page
	out, got []byte // scratch: a WRITE; a frame that has come back
}

// read is a READ of a slot: for a frame that came in at port `in`, or (scan) for a listing.
type read struct {
	slot, in int
	scan     bool
}

// change is an entry to write, or to remove.
type change struct {
	lookuptable.Entry
	slot   int
	remove bool
}

func (s *server) Use(t *lookuptable.Table, _ int) {
	if !t.Takes(s.table, len(s.changes)) {
		s.changes = nil
	}
	s.table, s.waits, s.asked, s.page = t, nil, 0, nil
}

// Bounce writes a frame to the cell behind the slot of its key. Then a READ brings slot and cell
// back, at once unless too many are in flight; the others wait in the order of their frames.
func (s *server) Bounce(c *pipeline.Ctx, in int, f packetio.Frame, _ *lookuptable.Key, h uint64) bool {
	st := s.table.Stats()
	switch {
	case lookuptable.SlotLen+framering.HeaderLen+len(f.Data) > s.table.Cell:
		return s.table.Refuse(c, in, f, &st.Long, lookuptable.ReasonLong)
	case !s.Up() || c.EmitsLeft() == 0:
		return s.table.Refuse(c, in, f, &st.Blocked, lookuptable.ReasonBlocked)
	case len(s.waits) >= s.table.Cells:
		return s.table.Refuse(c, in, f, &st.Full, lookuptable.ReasonFull)
	}
	_, slot := s.table.Place(h)
	s.out = framering.AppendFrame(s.out[:0], f)
	s.Send(c, wire.RCWriteOnly, s.table.At(slot)+lookuptable.SlotLen, len(s.out), s.out)
	s.waits = append(s.waits, read{slot: slot, in: in})
	s.Work(c)
	return true
}

// Work sends changes, and the next READs if they may be in flight.
func (s *server) Work(c *pipeline.Ctx) {
	if s.table == nil || !s.Up() {
		return
	}
	for len(s.changes) > 0 && c.EmitsLeft() > 0 {
		x := &s.changes[0]
		s.table.Changed(&x.Key, x.remove)
		s.page = nil
		s.out = lookuptable.AppendSlot(s.out[:0], 0, &x.Entry, !x.remove)
		s.Send(c, wire.RCWriteOnly, s.table.At(x.slot), len(s.out), s.out)
		s.changes = s.changes[1:]
	}
	for s.asked < min(len(s.waits), s.depth) && c.EmitsLeft() > 0 {
		s.Send(c, wire.RCReadRequest, s.table.At(s.waits[s.asked].slot), s.table.Cell, nil)
		s.asked++
	}
}

// Packet takes any READ response as the answer to the oldest READ in flight.
func (s *server) Packet(c *pipeline.Ctx, p *pipeline.Parsed) bool {
	if p.BTH.Opcode == wire.RCReadResponseOnly && s.asked > 0 {
		s.came(c, p.Payload)
	}
	return true
}

// came ends the oldest READ in flight; b is the answer, or nil if there is none.
func (s *server) came(c *pipeline.Ctx, b []byte) {
	r := s.waits[0]
	s.waits, s.asked = s.waits[1:], s.asked-1
	if r.scan {
		s.scan(r.slot, b)
		return
	}
	l := lookuptable.Lookup{In: r.in, Found: lookuptable.Gone}
	s.got = append(s.got[:0], b...)
	if len(s.got) < lookuptable.SlotLen {
		s.table.Done(c, &l, packetio.Frame{})
		return
	}
	f, ok := framering.ParseFrame(s.got[lookuptable.SlotLen:])
	var e lookuptable.Entry
	switch used := lookuptable.ReadSlot(s.got, &e); {
	case !ok:
	case used:
		l.Found, l.Action = lookuptable.Hit, e.Action
	default:
		l.Found = lookuptable.Miss
	}
	s.table.Done(c, &l, f)
}

// Busy returns false: a frame whose entry is in the cache overtakes the frames of its flow that are
// in flight.
func (s *server) Busy(uint64) bool { return false }

// InFlight returns how many frames are in flight: written to a cell, and not read back yet.
func (s *server) InFlight() (n int) {
	for _, r := range s.waits {
		if !r.scan {
			n++
		}
	}
	return n
}

// Cells returns how many cells are in use: one for each frame in flight.
func (s *server) Cells() int { return s.InFlight() }

func (s *server) Up() bool { return s.link.Usable() && s.Blind.Up() }

func (s *server) Begin(sh *switchconn.Shared, g memgrant.Grant) {
	s.Attach(sh, g)
	s.depth = sh.Depth
}

// End ends the READs in flight without an answer.
func (s *server) End(c *pipeline.Ctx) {
	s.Detach()
	for s.asked > 0 {
		s.came(c, nil)
	}
}

// Change queues a change. It is sent when there is a connection, and may overwrite the entry of
// another key.
func (s *server) Change(e *lookuptable.Entry, h uint64, remove bool) bool {
	if len(s.changes) >= lookuptable.MaxWaiting {
		return false
	}
	_, slot := s.table.Place(h)
	s.changes = append(s.changes, change{*e, slot, remove})
	return true
}

// Waiting returns how many changes were not sent yet.
func (s *server) Waiting() int { return len(s.changes) }

// Scan begins to read a server's slots; `from` is the number of the first.
func (s *server) Scan(from int) {
	if !slices.ContainsFunc(s.waits, func(r read) bool { return r.scan }) {
		s.scanned = lookuptable.Page{From: from, Next: from}
		s.waits = append(s.waits, read{slot: from, scan: true})
	}
}

// scan adds the entry in slot number `slot`, whose bytes are b, to the page of a listing. Then it
// asks for the next slot, or ends the page. b is nil if the READ had no answer: the page lacks the
// slot.
func (s *server) scan(slot int, b []byte) {
	var e lookuptable.Entry
	if len(b) >= lookuptable.SlotLen && lookuptable.ReadSlot(b, &e) {
		s.scanned.Entries = append(s.scanned.Entries, e)
	}
	s.scanned.Next = slot + 1
	if s.scanned.Next-s.scanned.From == pageSlots || s.scanned.Next >= s.table.Slots() {
		p := s.scanned
		s.page = &p
		return
	}
	s.waits = append(s.waits, read{slot: slot + 1, scan: true})
}

// Page returns the page that was read last. A second call returns nil, as long as no further page
// was read.
func (s *server) Page() *lookuptable.Page {
	p := s.page
	s.page = nil
	return p
}
