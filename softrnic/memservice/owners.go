package memservice

import (
	"errors"
	"maps"
	"slices"
)

// maxOwners is the largest number of owners that a service remembers. When the table is full, the
// service removes owners with small numbers (see Owners.forget). If it can remove none, it refuses
// further owners. When the table has lookAt owners, the service notes which of them have no
// connection.
const (
	maxOwners = 1 << 16
	lookAt    = maxOwners / 4 * 3
)

var errOwners = errors.New("too many owners: restart the memory server")

// Owners is the table of the owners of connections: which ones have connected, and which ones were
// fenced. If memory survives the service, as it survives a crash of the NIC, its table must
// survive, too: otherwise a client that was fenced could write to memory that others use now. The
// zero value is an empty table. Only one service at a time may use a table.
type Owners struct {
	known map[uint32]owner
	// retired is the number up to which all owners are fenced, except those in known, whose entries
	// say whether they are. Retire, FenceTo and removeGone raise it.
	retired uint32
	looked  bool // forget has set owner.gone of all owners since the table was last full
}

// owner is the state of one owner, that is, of one number under which a client has connected.
type owner struct {
	peer   string // the address of its last connection; "" means that it has never connected
	fenced bool
	gone   bool // it had no connection when forget looked, and has not connected since then
	took   taken
}

// taken is an owner's last Take that got a word, and the index of this word.
type taken struct{ number, index uint32 }

// note stores the state of an owner.
func (o *Owners) note(id uint32, to owner) error {
	if _, known := o.known[id]; !known && len(o.known) >= maxOwners {
		return errOwners
	}
	if o.known == nil {
		o.known = make(map[uint32]owner)
	}
	o.known[id] = to
	return nil
}

// admit returns nil if an owner may connect from the host with address peer, and otherwise the
// reason of the refusal.
func (o *Owners) admit(id uint32, peer string) error {
	switch {
	case id == 0:
		return nil
	case o.fenced(id):
		return ErrFenced
	}
	was := o.known[id]
	was.peer, was.gone = peer, false
	return o.note(id, was)
}

// fenced reports whether an owner was fenced or retired.
func (o *Owners) fenced(id uint32) bool {
	if was, known := o.known[id]; known {
		return was.fenced
	}
	return id <= o.retired
}

// fence makes admit refuse an owner.
func (o *Owners) fence(id uint32) error {
	was, known := o.known[id]
	if !known && id <= o.retired {
		return nil
	}
	was.fenced = true
	return o.note(id, was)
}

// forget frees entries when the table is full: it removes owners from the half that has the smaller
// numbers. Removed owners, and all smaller numbers that are not in the table, count as fenced. So a
// client that has ended needs no entry, and a fenced client never connects again. forget is called
// before each request; connected returns the owners with connections that work.
//
// An owner that was not fenced is removed only if it is gone: it had no connection when the number
// of entries reached lookAt, and has not connected since. So a client that has just lost its
// connection can connect again.
func (o *Owners) forget(connected func() map[uint32]bool) {
	full := len(o.known) >= maxOwners
	if !full && (o.looked || len(o.known) < lookAt) {
		return
	}
	if !o.looked {
		list := connected()
		for id, was := range o.known {
			was.gone = !list[id]
			o.known[id] = was
		}
	}
	if o.looked = !full; full {
		o.removeGone()
	}
}

// removeGone removes, from the half of the owners with the smaller numbers, those that were fenced
// or are gone.
func (o *Owners) removeGone() {
	ids := slices.Sorted(maps.Keys(o.known))
	for _, id := range ids[:len(ids)/2] {
		if was := o.known[id]; was.fenced || was.gone {
			delete(o.known, id)
			o.retired = max(o.retired, id)
		}
	}
}

// fenceTo makes admit refuse all owners with numbers up to id, and removes their entries.
func (o *Owners) fenceTo(id uint32) {
	o.retired = max(o.retired, id)
	maps.DeleteFunc(o.known, func(known uint32, _ owner) bool { return known <= id })
}

// last returns the largest number of an owner that has ever connected, or was retired.
func (o *Owners) last() uint32 {
	id := o.retired
	for known, was := range o.known {
		if was.peer != "" {
			id = max(id, known)
		}
	}
	return id
}

// retire fences all owners with numbers up to id and all that have ever connected, and removes
// their entries. It returns the largest number of an owner that had connected or was retired
// before.
func (o *Owners) retire(id uint32) (before uint32) {
	before = o.last()
	o.fenceTo(max(id, before))
	return before
}
