package memservice

import (
	"errors"
	"maps"
	"slices"
)

// maxOwners is the largest number of owners that a service remembers. When it is reached, the service
// forgets old ones (see Owners.forget), and refuses a further one if all of these have connections.
const maxOwners = 1 << 16

var errOwners = errors.New("too many owners: restart the memory server")

// Owners is the table of the owners of connections: which ones have connected, and which ones were
// fenced. If memory survives the service, as it survives a crash of the NIC, its table must survive, too:
// otherwise a client that was fenced could write to memory that others use now. The zero value is an
// empty table. Only one service at a time may use a table.
type Owners struct {
	known map[uint32]owner
	// retired is the largest retired owner. All owners up to it are fenced, but for those in known: these had
	// connections when the service forgot the others.
	retired uint32
}

// owner is the state of one owner.
type owner struct {
	peer   string // the address of its last connection; "" means that it has never connected
	fenced bool
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
	was.peer = peer
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

// forget makes room when the table is full: it removes the older half of the owners, and all of them are fenced
// from then on. So a client that has ended needs no entry any more, and one that was fenced never connects again.
// Those for which connected returns true remain as they are.
func (o *Owners) forget(connected func(id uint32) bool) {
	if len(o.known) < maxOwners {
		return
	}
	ids := slices.Sorted(maps.Keys(o.known))
	ids = ids[:len(ids)/2]
	for _, id := range ids {
		if o.known[id].fenced || !connected(id) {
			delete(o.known, id)
		}
	}
	o.retired = max(o.retired, ids[len(ids)-1])
}

// fenceTo makes admit refuse all owners up to id, and removes their entries.
func (o *Owners) fenceTo(id uint32) {
	o.retired = max(o.retired, id)
	maps.DeleteFunc(o.known, func(known uint32, _ owner) bool { return known <= id })
}

// last returns the largest owner that has ever connected, or was retired.
func (o *Owners) last() uint32 {
	id := o.retired
	for known, was := range o.known {
		if was.peer != "" {
			id = max(id, known)
		}
	}
	return id
}

// retire fences all owners up to id and all that have ever connected, and removes their entries. It
// returns the largest owner that had connected or was retired before.
func (o *Owners) retire(id uint32) (before uint32) {
	before = o.last()
	o.fenceTo(max(id, before))
	return before
}
