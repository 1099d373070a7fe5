package serialize

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// When a server or its link is silent for longer than a client's NIC retries, the client's queue
// pair fails. The application then connects again and repeats the failed operation. The switch
// retries for longer, so the server could execute the old request after the new ones: a WRITE of
// the former owner of a lock would change memory that the next owner has locked. The switch
// prevents this when a client's connection begins: a shared connection may have a request in flight
// that its client has given up (see isLate). Then the new connection waits until the requests on
// the shared one have ended. Until then the switch drops the requests of the new connection, and
// the client's NIC retransmits them. Connections that exist already do not wait: the switch does
// not order their requests behind those that their host has lost on another connection.

// A request on a shared connection that has had no answer for reconnectAge delays new connections
// of its client's host: the client's queue pair may have failed, and the client connects again. A
// NIC with an ACK timeout above reconnectAge cannot have given up earlier; NICs with shorter ones
// are not protected (swordbox/HOLES.md). After formerAge the request delays new connections of all
// hosts: the client may be dead, and the server may have fenced it, so that a client on another
// host takes over. See isLate.
const (
	formerAge    = 2 * time.Millisecond
	reconnectAge = 250 * time.Microsecond
)

// former names requests for which a new flow waits: all requests of a shared connection whose
// positions are before `end`.
type former struct {
	conn *requester.Conn
	end  uint32
}

// formers says which requests must end before a new flow sends its first request: those in list,
// and the held requests that, at the time `began`, already waited for a shared connection to the
// same server. began is when the flow's sequencer was made. If list is nil, the flow waits for
// nothing.
type formers struct {
	list  []former
	began clock.Time
}

// formersOf returns the requests that a new flow from a host must not overtake, because the server
// may execute them late. For each shared connection that isLate selects, it names the newest
// request: when this request has ended, all others on the connection have ended, too.
func (s *server) formersOf(now clock.Time, host netip.Addr) (out []former) {
	for _, k := range s.links {
		if k.isLate(now, host) {
			out = append(out, former{k.conn, k.conn.Requests.Newest()})
		}
	}
	return out
}

// hasFormers reports whether there are requests for which a new flow from the host must wait: those
// that formersOf returns.
func (s *server) hasFormers(now clock.Time, host netip.Addr) bool {
	return slices.ContainsFunc(s.links, func(k *link) bool { return k.isLate(now, host) })
}

// isLate reports whether the shared connection has a request in flight that must end before a new
// connection from host sends requests, because the request's client may have given it up. That is
// so if the request has waited for formerAge; if it came from host and has waited for reconnectAge;
// or if its client's connection has ended.
func (k *link) isLate(now clock.Time, host netip.Addr) (late bool) {
	if since, ok := k.conn.Requests.Oldest(); ok && now.Sub(since) >= formerAge {
		return true
	}
	k.conn.Requests.Each(func(t requester.Tag, _ wire.PSN, _ wire.Opcode, since clock.Time) {
		l := k.s.m.flows.byTag(t)
		late = late || l == nil || l.hasEnded() || l.replies.client == host && now.Sub(since) >= reconnectAge
	})
	return late
}

// hasEnded reports whether the connection of the flow has ended, or a DREQ has asked for its end.
func (l *sequencer) hasEnded() bool {
	return l.phase == closed || l.flow.Generation != l.generation || l.flow.State >= conntrack.Closing
}

// pending reports whether a flow to a server must still wait for older requests: those that were in
// flight on shared connections (formersOf), or held for one, when the flow began.
func (w *formers) pending(s *server) bool {
	if w.list == nil {
		return false
	}
	for _, f := range w.list {
		if !f.conn.Requests.HasEnded(f.end) {
			return true
		}
	}
	for _, b := range s.m.blocked.list {
		if b.s == s && b.place != placeOwn && b.waits.held.n > 0 && s.m.held.slots[b.waits.held.first].at <= w.began {
			return true
		}
	}
	w.list = nil
	return false
}
