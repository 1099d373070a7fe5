package serve

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/ucma"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// ClientStatus describes an attached application.
type ClientStatus struct {
	ID   uint64 `json:"id"`
	PID  int32  `json:"pid"` // process ID in the daemon's PID namespace
	UID  uint32 `json:"uid"`
	Name string `json:"name,omitempty"`
	// Since is when the application attached.
	Since time.Time `json:"since"`
	// The numbers of the application's objects.
	PDs       int `json:"pds"`
	MRs       int `json:"mrs"`
	MWs       int `json:"mws"`
	DMs       int `json:"dms"`
	AHs       int `json:"ahs"`
	CQs       int `json:"cqs"`
	SRQs      int `json:"srqs"`
	QPs       int `json:"qps"`
	Listeners int `json:"listeners"`
	// Bytes is the size of the memory that the daemon has made for this application to register, and
	// of the shares of its memory (see share). Shared regions, rings and device memory do not count.
	Bytes int64 `json:"bytes"`
	// Posted counts work requests, Completions the completions copied to the application, and
	// LostEvents the events that were lost because the application did not read them.
	Posted      uint64 `json:"posted"`
	Completions uint64 `json:"completions"`
	LostEvents  uint64 `json:"lostEvents"`
	// Wakes is how often the daemon has read wake-ups from the application. The application sends one,
	// by a system call, if it posts while the daemon sleeps.
	Wakes uint64 `json:"wakes"`

	manager bool // the client is the librdmacm of an unmodified program
}

// SharedStatus describes a shared region: a region that survives the applications that use it.
type SharedStatus struct {
	Name   string `json:"name"`
	UID    uint32 `json:"uid"`
	Addr   uint64 `json:"addr"`
	RKey   uint32 `json:"rkey"`
	Length int    `json:"length"`
	// Open is the number of handles of the region that applications have.
	Open int `json:"open"`
}

// Clients returns the attached applications in the order in which they attached.
func (s *Server) Clients() []ClientStatus {
	s.mu.Lock()
	out := make([]ClientStatus, 0, len(s.clients))
	at := make(map[*client]int, len(s.clients))
	for c := range s.clients {
		at[c] = len(out)
		out = append(out, c.status())
	}
	s.mu.Unlock()
	managers := make(map[int]*programManager)
	s.pump.with(func(*engine.Engine) {
		for c, i := range at {
			if c.cmgr != nil {
				managers[i], out[i].manager = c.cmgr, true
			}
		}
		for _, p := range s.pump.ports {
			if i, ok := at[p.c]; ok {
				out[i].Posted, out[i].Completions, out[i].LostEvents, out[i].Wakes = p.posts, p.wcs, p.lost, p.wakes
			}
		}
	})
	for i, x := range managers {
		out[i].Listeners = x.listeners()
	}
	slices.SortFunc(out, func(a, b ClientStatus) int { return cmp.Compare(a.ID, b.ID) })
	return oneRow(out)
}

// IdentifierStatus is an identifier of the connection manager, with the process to which it belongs.
type IdentifierStatus struct {
	ucma.Identifier
	PID int32 // in the daemon's PID namespace
}

// Identifiers lists the identifiers of programs over librdmacm that are on NIC nic of the host: 0 is that of
// this server, which serves them all.
func (s *Server) Identifiers(nic int) (out []IdentifierStatus) {
	s.mu.Lock()
	clients := slices.SortedFunc(maps.Keys(s.clients), func(a, b *client) int { return cmp.Compare(a.id, b.id) })
	s.mu.Unlock()
	managers := make([]*programManager, len(clients))
	s.pump.with(func(*engine.Engine) {
		for i, c := range clients {
			managers[i] = c.cmgr
		}
	})
	for i, x := range managers {
		if x == nil || nic >= len(x.nics) {
			continue
		}
		n := x.nics[nic]
		n.step(func(step ucma.Step) {
			for _, id := range step.Identifiers(n.m) {
				out = append(out, IdentifierStatus{id, clients[i].cred.Pid})
			}
		})
	}
	return out
}

// oneRow merges the two connections of an unmodified program, that of libibverbs and that of
// librdmacm, into one row. Programs of other PID namespaces have PID 0, and are not merged.
func oneRow(in []ClientStatus) (out []ClientStatus) {
	for _, c := range in {
		i := slices.IndexFunc(out, func(o ClientStatus) bool {
			return c.PID != 0 && o.PID == c.PID && o.UID == c.UID && o.manager != c.manager
		})
		if i < 0 {
			out = append(out, c)
			continue
		}
		listeners := out[i].Listeners + c.Listeners
		if out[i].manager {
			out[i] = c
		}
		out[i].Listeners = listeners
	}
	return out
}

func (c *client) status() ClientStatus {
	c.mu.Lock()
	name := c.name
	c.mu.Unlock()
	t := &c.objects
	t.mu.Lock()
	defer t.mu.Unlock()
	n := func(k kind) int { return int(t.counts[k]) }
	return ClientStatus{
		ID: c.id, PID: c.cred.Pid, UID: c.cred.Uid, Name: name, Since: c.since,
		PDs: n(kindPD), MRs: n(kindMR), MWs: n(kindMW), DMs: n(kindDM), AHs: n(kindAH), CQs: n(kindCQ), SRQs: n(kindSRQ), QPs: n(kindQP),
		Listeners: n(kindListener), Bytes: t.counts[kindMapped],
	}
}

// Shared lists the shared regions by name.
func (s *Server) Shared() []SharedStatus {
	s.shared.mu.Lock()
	defer s.shared.mu.Unlock()
	out := make([]SharedStatus, 0, len(s.shared.byName))
	for _, r := range s.shared.byName {
		out = append(out, SharedStatus{Name: r.name, UID: r.uid, Addr: r.mr.Addr(), RKey: r.mr.RKey(), Length: len(r.bytes), Open: r.refs})
	}
	slices.SortFunc(out, func(a, b SharedStatus) int { return cmp.Compare(a.Name, b.Name) })
	return out
}

// event sends an event to the application. If the application has left too many messages unread,
// the event is lost. If p is nil, event does nothing.
func (p *port) event(ev verbs.AsyncEvent) {
	if p == nil {
		return
	}
	if p.c.prog != nil {
		if !p.c.prog.event(ev) {
			p.lost++
		}
		return
	}
	data, err := eventMessage(ev)
	if err != nil {
		return
	}
	select {
	case p.c.out <- outgoing{data: data}:
	default:
		p.lost++
	}
}
