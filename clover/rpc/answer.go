package rpc

import (
	"encoding/binary"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/clover/layout"
)

// Answer is the server's answer to a request.
type Answer struct {
	// Seq is Request.Seq of the request. Epoch is the server's present epoch.
	Seq    uint32
	Status Status
	// Scarce is true if few nodes are free, and the client should give back the nodes that it does
	// not use.
	Scarce bool
	Epoch  uint32
	// Clock counts the reports that the server has taken, from a number that is higher in each
	// incarnation of the server. See Record.Heard.
	Clock uint64
	// N is the number of Locations. In answers to Alloc and GC, these name the entries that the client
	// gets, with the versions that it must write. In answers to Query, there is one: the newest
	// node of the key that the server knows.
	N         int
	Locations [MaxBatch]layout.Location
	// Slot is the slot of the key, in answers to Query and Open. In an answer Full to Alloc, it is
	// the number of segments without a class.
	Slot uint32
	// Welcome is set in an answer to Hello, and Stats in an answer to Stat, if the status is OK. In
	// other answers they are nil.
	Welcome *Welcome
	Stats   *Stats
}

// Stats has a metadata server's counters, and the number of its nodes in each state.
type Stats struct {
	// Requests counts the valid requests. Refused counts invalid and late requests, and parts of
	// reports that were ignored. Walked counts the headers of nodes that the server has read, and
	// Recovered the keys that it found when it started. Losses counts how often it has formatted or
	// filled the memory of a server again. Broken counts chains that led to a node with a wrong
	// header.
	Requests, Refused, Walked, Recovered, Losses, Broken uint64
	// Epoch is the present epoch, Clients the number of clients. Keys is how many keys exist,
	// LostKeys included. Slots is how many keys the store can hold.
	Epoch, Clients, Keys, LostKeys, Slots uint64
	NodeStats
	ClassStats
	// Copies is the number of copies of each node. Away is the number of memory servers whose
	// copies do not count.
	Copies, Away uint64
	Servers      []Share
}

// NodeStats says what became of the nodes.
type NodeStats struct {
	// Nodes is the number of all nodes. Free, Held, Linked and Worn are the numbers of nodes in each
	// state: see package meta.
	Nodes, Free, Held, Linked, Worn uint64
	// Granted counts the nodes that clients got, and Freed those that became free again or for the
	// first time.
	Granted, Freed uint64
}

// Share is the number of a memory server's nodes, and of those that are free. When clients request
// nodes without naming a server, Permille thousandths of these nodes come from this server.
type Share struct{ Nodes, Free, Permille uint64 }

const shareLen = 3 * 8

// ClassStats says how the classes of nodes share the memory.
type ClassStats struct {
	// Segments is the number of segments of a shared space. Unused is the number of segments
	// without a class. Resting is the number of segments that are about to lose their class: they
	// wait until every client has left the epoch.
	Segments, Unused, Resting uint64
	// ClassNodes is the number of nodes of each class. ClassFree is the number of free nodes of
	// each class.
	ClassNodes, ClassFree [layout.Classes]uint64
}

func (s *Stats) fields() []*uint64 {
	list := []*uint64{
		&s.Requests, &s.Refused, &s.Walked, &s.Recovered, &s.Losses, &s.Broken, &s.Granted, &s.Freed, &s.Epoch, &s.Clients, &s.Keys, &s.LostKeys, &s.Slots,
		&s.Nodes, &s.Free, &s.Held, &s.Linked, &s.Worn, &s.Segments, &s.Unused, &s.Resting,
	}
	for i := range layout.Classes {
		list = append(list, &s.ClassNodes[i], &s.ClassFree[i])
	}
	return append(list, &s.Copies, &s.Away)
}

// Welcome describes a store to a new client.
type Welcome struct {
	Client uint32
	// Owner is the number under which the client connects to the memory servers.
	Owner uint32
	// Incarnation is the number of the metadata server's incarnation. Each incarnation counts its
	// own epochs.
	Incarnation uint32
	// Lease is how long the client may use the locations that it knows, counted from when it sent
	// its last answered request.
	Lease  time.Duration
	Space  layout.Space
	Format layout.Format
	// Servers has the memory servers in the order of the space, with the generations of their
	// memory. A Generation of 0 says that the copies of this server do not count at present.
	Servers []Server
}

// Server is one memory server.
type Server struct {
	Addr       netip.Addr
	Generation uint64
}

// scarceBit is the bit of an encoded status that carries Answer.Scarce.
const scarceBit = 1 << 15

// A Welcome has one 32-bit word for three fields of layout.Space: Servers in the bits below
// backupsShift, Backups in those from there up to sharedBit, and Shared in sharedBit.
const (
	sharedBit    = 1 << 31
	backupsShift = 24
)

const (
	welcomeFixed = 4 + 4 + 4 + 8 + 4 + 4 + 4 + 4*layout.Classes
	serverLen    = 16 + 8
)

func (a *Answer) AppendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, a.Seq)
	status := uint16(a.Status)
	if a.Scarce {
		status |= scarceBit
	}
	b = le.AppendUint16(b, status)
	b = le.AppendUint16(b, uint16(a.N))
	b = le.AppendUint32(b, a.Epoch)
	b = le.AppendUint64(b, a.Clock)
	if a.Welcome != nil {
		return a.Welcome.appendTo(b)
	}
	if a.Stats != nil {
		for _, v := range a.Stats.fields() {
			b = le.AppendUint64(b, *v)
		}
		b = le.AppendUint64(b, uint64(len(a.Stats.Servers)))
		for _, s := range a.Stats.Servers {
			b = le.AppendUint64(le.AppendUint64(le.AppendUint64(b, s.Nodes), s.Free), s.Permille)
		}
		return b
	}
	b = le.AppendUint32(b, a.Slot)
	for _, l := range a.Locations[:a.N] {
		b = le.AppendUint64(b, uint64(l.Word()))
	}
	return b
}

func (w *Welcome) appendTo(b []byte) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, w.Client)
	b = le.AppendUint32(b, w.Owner)
	b = le.AppendUint32(b, w.Incarnation)
	b = le.AppendUint64(b, uint64(w.Lease))
	b = le.AppendUint32(b, w.Format.Bits())
	servers := uint32(w.Space.Servers) | uint32(w.Space.Backups)<<backupsShift
	if w.Space.Shared {
		servers |= sharedBit
	}
	b = le.AppendUint32(b, servers)
	b = le.AppendUint32(b, uint32(w.Space.Shortcuts))
	for _, n := range w.Space.Entries {
		b = le.AppendUint32(b, uint32(n))
	}
	for _, s := range w.Servers {
		a := s.Addr.As16()
		b = append(b, a[:]...)
		b = le.AppendUint64(b, s.Generation)
	}
	return b
}

// Parse reads the answer to a request of kind op. The layout of the body depends on op. Parse
// returns ErrMessage if b is no valid answer.
func (a *Answer) Parse(b []byte, op Op) error {
	if len(b) < answerHead {
		return ErrMessage
	}
	le := binary.LittleEndian
	status := le.Uint16(b[4:])
	a.Seq, a.Status, a.Scarce = le.Uint32(b), Status(status&^scarceBit), status&scarceBit != 0
	a.N, a.Epoch, a.Clock = int(le.Uint16(b[6:])), le.Uint32(b[8:]), le.Uint64(b[12:])
	a.Slot, a.Welcome, a.Stats = 0, nil, nil
	if a.N > MaxBatch { // also in an answer without locations, because callers may iterate over N
		return ErrMessage
	}
	body := b[answerHead:]
	switch {
	case op == OpHello && a.Status == OK:
		a.Welcome = new(Welcome)
		return a.Welcome.parse(body)
	case op == OpStat && a.Status == OK:
		a.Stats = new(Stats)
		fields := a.Stats.fields()
		if len(body) < 8*len(fields)+8 {
			return ErrMessage
		}
		for i, f := range fields {
			*f = le.Uint64(body[8*i:])
		}
		body = body[8*len(fields):]
		n := le.Uint64(body)
		if body = body[8:]; n > layout.MaxServers || len(body) < int(n)*shareLen {
			return ErrMessage
		}
		for range n {
			a.Stats.Servers = append(a.Stats.Servers, Share{le.Uint64(body), le.Uint64(body[8:]), le.Uint64(body[16:])})
			body = body[shareLen:]
		}
		return nil
	}
	if len(body) < 4+8*a.N {
		return ErrMessage
	}
	a.Slot = le.Uint32(body)
	for i := range a.N {
		var ok bool
		if a.Locations[i], ok = layout.LocationOf(layout.Word(le.Uint64(body[4+8*i:]))); !ok {
			return ErrMessage
		}
	}
	return nil
}

func (w *Welcome) parse(b []byte) error {
	if len(b) < welcomeFixed {
		return ErrMessage
	}
	le := binary.LittleEndian
	w.Client, w.Owner, w.Incarnation = le.Uint32(b), le.Uint32(b[4:]), le.Uint32(b[8:])
	b = b[8:]
	w.Lease = time.Duration(le.Uint64(b[4:]))
	var ok bool
	w.Format, ok = layout.FormatOf(le.Uint32(b[12:]))
	servers := le.Uint32(b[16:])
	w.Space.Shared, w.Space.Shortcuts = servers&sharedBit != 0, int(le.Uint32(b[20:]))
	w.Space.Servers, w.Space.Backups = int(servers&(1<<backupsShift-1)), int(servers&^sharedBit>>backupsShift)
	for i := range w.Space.Entries {
		w.Space.Entries[i] = int(int32(le.Uint32(b[24+4*i:])))
	}
	if err := w.Space.Validate(); err != nil || w.Lease <= 0 || !ok || len(b) < welcomeFixed-8+w.Space.Servers*serverLen {
		return ErrMessage
	}
	w.Servers = make([]Server, w.Space.Servers)
	for i := range w.Servers {
		s := b[welcomeFixed-8+i*serverLen:]
		w.Servers[i] = Server{netip.AddrFrom16([16]byte(s[:16])).Unmap(), le.Uint64(s[16:])}
	}
	return nil
}
