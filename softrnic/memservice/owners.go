package memservice

import (
	"errors"
	"maps"
)

// maxOwners bounds the owners that a service remembers; a memory server whose owners have been used
// up must be restarted.
const maxOwners = 1 << 16

var errOwners = errors.New("too many owners: restart the memory server")

// owners is the table of the owners of connections.
type owners struct {
	known map[uint32]owner
	// retired is the last retired owner: all up to it are fenced and not in known.
	retired uint32
}

// owner is the state of one owner.
type owner struct {
	peer   string // the address of its last connection; "": it never connected
	fenced bool
	took   taken
}

// taken is the last request of an owner for a word, and the index of the word that it has got.
type taken struct{ number, index uint32 }

// note stores the state of an owner.
func (o *owners) note(id uint32, to owner) error {
	if _, known := o.known[id]; !known && len(o.known) >= maxOwners {
		return errOwners
	}
	o.known[id] = to
	return nil
}

// admit decides about a connection of an owner from the host with address peer. The error is the
// refusal.
func (o *owners) admit(id uint32, peer string) error {
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
func (o *owners) fenced(id uint32) bool { return id <= o.retired || o.known[id].fenced }

// fence refuses further connections of an owner.
func (o *owners) fence(id uint32) error {
	if id <= o.retired {
		return nil
	}
	was := o.known[id]
	was.fenced = true
	return o.note(id, was)
}

// fenceTo refuses connections of all owners up to id, and forgets their entries.
func (o *owners) fenceTo(id uint32) {
	o.retired = max(o.retired, id)
	maps.DeleteFunc(o.known, func(known uint32, _ owner) bool { return known <= o.retired })
}

// retire fences all owners up to id and all that ever connected, forgets their entries and returns
// the last one.
func (o *owners) retire(id uint32) uint32 {
	for known, was := range o.known {
		if was.peer != "" {
			id = max(id, known)
		}
	}
	o.fenceTo(id)
	return o.retired
}
