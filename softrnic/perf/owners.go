package perf

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"strconv"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// maxOwners bounds the owners that a service remembers; a memory server whose owners have been used up must be restarted.
const maxOwners = 1 << 16

// fencedReason is the answer to a fence, and the refusal of a fenced owner. The number of the last owner follows retiredReason.
const (
	fencedReason  = "fenced"
	retiredReason = "retired "
)

// owners is what a memory service knows of those who answer for its connections.
type owners map[uint32]owner

type owner struct {
	peer   string
	fenced bool
}

var errOwners = errors.New("too many owners: restart the memory server")

// note takes down what became of an owner.
func (o owners) note(id uint32, to owner) error {
	if _, known := o[id]; !known && len(o) >= maxOwners {
		return errOwners
	}
	o[id] = to
	return nil
}

// admit decides about a connection of an owner. A refusal has a reason.
func (s *Server) admit(h hello, peer string) (refusal string) {
	if h.Owner == 0 {
		return ""
	}
	if s.isFenced(h.Owner) {
		return fencedReason
	}
	if err := s.owners.note(h.Owner, owner{peer: peer}); err != nil {
		return err.Error()
	}
	return ""
}

// answer answers what needs no connection.
func (s *Server) answer(h hello) string {
	switch h.Op {
	case opFence:
		return s.fence(h.Owner)
	case opWho:
		return s.who(h.Owner)
	case opRetire:
		return s.retire(h.Owner)
	default:
	}
	s.endID(h.ID)
	return closedReason
}

// endID ends the connection of that name, if there is one.
func (s *Server) endID(id uint64) {
	for i, c := range s.conns {
		if c.id == id {
			s.end(i)
			return
		}
	}
}

// isFenced reports whether an owner was fenced, or is of those that were retired.
func (s *Server) isFenced(id uint32) bool { return id <= s.retired || s.owners[id].fenced }

// retire fences all owners up to id, and all that ever had a connection. From then on they need not be remembered one by one.
func (s *Server) retire(id uint32) string {
	for known, o := range s.owners {
		if o.peer != "" {
			id = max(id, known)
		}
	}
	s.retired = max(s.retired, id)
	maps.DeleteFunc(s.owners, func(known uint32, _ owner) bool { return known <= s.retired })
	for i := len(s.conns) - 1; i >= 0; i-- {
		if s.conns[i].hello.Owner != 0 {
			s.end(i)
		}
	}
	return retiredReason + strconv.FormatUint(uint64(s.retired), 10)
}

// fence ends all connections of an owner and takes no more of them.
func (s *Server) fence(id uint32) string {
	was := s.owners[id]
	was.fenced = true
	if id > s.retired {
		if err := s.owners.note(id, was); err != nil {
			return err.Error()
		}
	}
	for i := len(s.conns) - 1; i >= 0; i-- {
		if s.conns[i].hello.Owner == id {
			s.end(i)
		}
	}
	return fencedReason
}

// who describes an owner.
func (s *Server) who(id uint32) string {
	o := s.owners[id]
	h := Holder{Peer: o.peer, Fenced: s.isFenced(id)}
	for _, c := range s.conns {
		if c.hello.Owner != id {
			continue
		}
		if a, err := c.qp.Query(); err == nil && a.State != verbs.StateError {
			h.QPs++
		}
	}
	b, err := json.Marshal(h)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

// lockMemory makes the lock table on the NIC.
func (s *Server) lockMemory() error {
	s.owners, s.retired, s.boot = make(owners), 0, uint64(s.rt.Now())+1
	if s.cfg.Locks == 0 {
		return nil
	}
	dm, err := s.ctx.AllocDM(s.cfg.Locks)
	if err == nil {
		s.locks, err = s.pd.RegDM(dm, 0, s.cfg.Locks, remoteAccess)
	}
	if err != nil {
		return fmt.Errorf("service %q: %d bytes of memory on the NIC: %w", s.cfg.Service, s.cfg.Locks, err)
	}
	return nil
}

// Locks is the lock table on the NIC; nil if there is none.
func (s *Server) Locks() verbs.MR { return s.locks }
