package conntrack

import (
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// datagram learns connections from a message of the connection manager. Messages may be lost,
// duplicated and reordered. A message other than a REQ must match a handshake or a connection that
// the table knows; otherwise it changes nothing and counts as stray (Stats.Strays).
func (t *Table) datagram(now clock.Time, in int, f *wire.Frame, icrc Checker) {
	if len(f.Payload) < mad.Size || t.header.Parse(f.Payload) != nil || !t.header.IsCM() {
		return
	}
	if !intact(icrc) {
		t.stats.Damaged++
		return
	}
	from, bad := t.hosts.from(now, f.SrcAddr(), in)
	if bad != Fine {
		return
	}
	to := f.DstAddr()
	body := f.Payload[mad.HeaderLen:mad.Size]
	ok := false
	switch t.header.Attr {
	case mad.AttrREQ:
		if ok = t.setups.request(now, from, to, body); ok {
			t.wake(now)
		}
	case mad.AttrREP:
		ok = t.reply(now, from, to, body)
	case mad.AttrRTU:
		ok = t.setups.established(from.addr, body)
	case mad.AttrREJ:
		ok = t.reject(from.addr, to, body)
	case mad.AttrDREQ:
		ok = t.disconnect(from.addr, to, body)
	case mad.AttrDREP:
		ok = t.disconnected(now, from.addr, to, body)
	default: // MRA extends a timeout; SIDR makes no connections
		return
	}
	if ok {
		t.stats.Datagrams++
	} else {
		t.stats.Strays++
	}
}

// reply handles a REP: it names the second end of the connection, and reply creates the two flows.
// The result is false if the REP is not valid, or if there is no room for the flows.
func (t *Table) reply(now clock.Time, from *host, to netip.Addr, body []byte) bool {
	var m mad.REP
	if m.Parse(body) != nil || m.QPN <= gsi {
		return false
	}
	a, b := setupKey{to, m.RemoteID}, setupKey{from.addr, m.LocalID}
	s := t.setups.asked[a]
	if s == nil {
		s = t.setups.known[a]
		return s != nil && s.b == b && s.qpnB == m.QPN // a retransmission
	}
	if s.b.owner != from.addr || a == b {
		return false
	}
	for _, k := range []setupKey{a, b} {
		if old := t.setups.known[k]; old != nil {
			t.drop(old.toB) // this end now uses the communication ID of old for the new connection, so old has ended
		}
	}
	toB := key{addrsBetween(to, from.addr), m.QPN}
	toA := key{addrsBetween(from.addr, to), s.qpn}
	if toB == toA {
		return false
	}
	for _, k := range []*key{&toB, &toA} {
		if old := t.index.get(k); old != nil {
			t.drop(old) // the queue pair now belongs to this connection
		}
	}
	return t.announce(now, s, b, from, &toB, &toA, &m)
}

// announce creates the two flows of a connection from its REQ, recorded in s, and its REP m. Host
// `from` has sent the REP: it is end b of the connection. The argument b names the connection by
// the communication ID of this end. toB is the key of the flow to end b, toA that of the flow to
// the other end.
func (t *Table) announce(now clock.Time, s *setup, b setupKey, from *host, toB, toA *key, m *mad.REP) bool {
	out := t.newFlow(now, toB, s.host, from.addr)
	if out == nil {
		t.stats.NoRoom++
		return false
	}
	back := t.newFlow(now, toA, from, s.a.owner)
	if back == nil {
		t.drop(out)
		t.stats.NoRoom++
		return false
	}
	t.pair(out, back)
	out.Expected, back.Expected = m.PSN, s.psn
	for _, fl := range []*Flow{out, back} {
		fl.State.on(evAnnounced)
		fl.sync.on(evStart)
		fl.announced = true
		fl.setMTU(s.mtu)
	}
	t.setups.replied(s, b, m.QPN, out, back)
	t.stats.Announced++
	return true
}

// reject handles a REJ. A REJ does not end a connection that is in use.
func (t *Table) reject(from, to netip.Addr, body []byte) bool {
	var m mad.REJ
	if m.Parse(body) != nil {
		return false
	}
	s := t.setups.find(from, to, m.LocalID, m.RemoteID)
	switch {
	case s == nil || s.replied && (s.toB.State != Connecting || s.toA.State != Connecting):
		return false
	case s.replied:
		t.drop(s.toB)
	default:
		t.setups.forget(s)
	}
	return true
}

// disconnect handles a DREQ, which names the receiver's queue pair.
func (t *Table) disconnect(from, to netip.Addr, body []byte) bool {
	var m mad.DREQ
	if m.Parse(body) != nil {
		return false
	}
	s := t.setups.find(from, to, m.LocalID, m.RemoteID)
	if s == nil {
		return t.index.disconnect(from, to, m.QPN)
	}
	if !s.replied {
		return false
	}
	if from == s.a.owner && m.QPN != s.toB.RespQPN || from != s.a.owner && m.QPN != s.qpn {
		return false
	}
	s.on(evDisconnect)
	return true
}

// disconnect handles a DREQ of a connection whose handshake the table did not see, because the
// program was loaded later. The flows of such a connection were paired by their packets. The table
// does not know the communication IDs, but it knows the receiver's queue pair.
func (x *index) disconnect(from, to netip.Addr, qpn wire.QPN) bool {
	if from.Is4() != to.Is4() {
		return false
	}
	fl := x.get(&key{addrsBetween(from, to), qpn})
	if fl == nil || fl.Peer == nil || fl.setup != nil || fl.Peer.setup != nil || fl.State != Open || fl.Peer.State != Open {
		return false
	}
	fl.State.on(evDisconnect)
	fl.Peer.State.on(evDisconnect)
	return true
}

// disconnected handles a DREP: the connection has ended.
func (t *Table) disconnected(now clock.Time, from, to netip.Addr, body []byte) bool {
	var m mad.DREP
	if m.Parse(body) != nil {
		return false
	}
	s := t.setups.find(from, to, m.LocalID, m.RemoteID)
	if s == nil || !s.replied || s.toB.State != Closing {
		return false
	}
	t.end(now, s.toB)
	return true
}
