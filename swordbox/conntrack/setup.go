package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Bounds of set-ups.
const (
	// setupTime is how long a request for a connection waits for its answer: longer than a connection manager asks.
	setupTime = time.Minute
	// maxSetupsPerHost is how many requests of a host may wait.
	maxSetupsPerHost = 1024
)

// setupKey names a connection by the number that one of its ends gave it.
type setupKey struct {
	owner netip.Addr
	id    mad.CommID
}

// setup is a connection as the connection managers of its ends speak of it: a asked, b answered.
type setup struct {
	a, b     setupKey
	host     *host // of a
	qpn      wire.QPN
	psn      wire.PSN // the first that a expects
	mtu      int
	at       clock.Time // of the last REQ
	replied  bool
	qpnB     wire.QPN
	toB, toA *Row // valid if replied
}

// mtuOf is the number of bytes of an MTU code, 0 if it is none (IBTA 9.3.1).
func mtuOf(code uint8) int {
	if code < 1 || code > 5 {
		return 0
	}
	return 128 << code
}

// datagram learns from a message of the connection manager. Messages get lost, doubled and overtaken; each of them is
// taken for what it says.
func (t *Table) datagram(now clock.Time, in int, f *wire.Frame, icrc Checker) {
	if len(f.Payload) < mad.Size || t.mad.Parse(f.Payload) != nil || !t.mad.IsCM() {
		return
	}
	if !intact(icrc) {
		t.stats.Damaged++
		return
	}
	from, bad := t.from(now, f.SrcAddr(), in)
	if bad != Fine {
		if bad == Spoofed {
			t.stats.Spoofed++
		} else {
			t.stats.NoRoom++
		}
		return
	}
	to := f.DstAddr()
	body := f.Payload[mad.HeaderLen:mad.Size]
	ok := false
	switch t.mad.Attr {
	case mad.AttrREQ:
		ok = t.req(now, from, to, body)
	case mad.AttrREP:
		ok = t.rep(now, from, to, body)
	case mad.AttrRTU:
		ok = t.rtu(from.addr, body)
	case mad.AttrREJ:
		ok = t.rej(from.addr, to, body)
	case mad.AttrDREQ:
		ok = t.dreq(from.addr, to, body)
	case mad.AttrDREP:
		ok = t.drep(now, from.addr, to, body)
	default: // MRA asks for patience; SIDR makes no connections
		return
	}
	if ok {
		t.stats.Datagrams++
	} else {
		t.stats.Strays++
	}
}

// req notes what the one who asks for a connection says of itself.
func (t *Table) req(now clock.Time, from *host, to netip.Addr, body []byte) bool {
	var m mad.REQ
	if m.Parse(body) != nil || m.Type != 0 || m.QPN <= gsi || mtuOf(m.MTU) == 0 {
		return false
	}
	if netip.AddrFrom16(m.Primary.LocalGID).Unmap() != from.addr || netip.AddrFrom16(m.Primary.RemoteGID).Unmap() != to {
		return false // the connection is between others than the datagram
	}
	k := setupKey{from.addr, m.LocalID}
	for _, s := range []*setup{t.asked[k], t.setups[k]} {
		if s != nil && s.a == k && s.b.owner == to && s.qpn == m.QPN && s.psn == m.PSN {
			s.at = now
			return true // it came again
		}
	}
	if old := t.asked[k]; old != nil {
		t.forgetSetup(old)
	}
	if from.setups >= maxSetupsPerHost || len(t.asked) >= t.cfg.Connections {
		t.stats.NoRoom++
		return false
	}
	t.asked[k] = &setup{a: k, b: setupKey{owner: to}, host: from, qpn: m.QPN, psn: m.PSN, mtu: mtuOf(m.MTU), at: now}
	from.setups++
	if t.sweep == clock.Never {
		t.sweep = now.Add(sweepEvery)
	}
	return true
}

// rep makes the two rows of a connection: now both ends are known.
func (t *Table) rep(now clock.Time, from *host, to netip.Addr, body []byte) bool {
	var m mad.REP
	if m.Parse(body) != nil || m.QPN <= gsi {
		return false
	}
	a, b := setupKey{to, m.RemoteID}, setupKey{from.addr, m.LocalID}
	s := t.asked[a]
	if s == nil {
		s = t.setups[a]
		return s != nil && s.b == b && s.qpnB == m.QPN // it came again
	}
	if s.b.owner != from.addr || a == b {
		return false
	}
	for _, k := range []setupKey{a, b} {
		if old := t.setups[k]; old != nil {
			t.drop(old.toB) // its number has been given to this connection
		}
	}
	toB := key{endsBetween(to, from.addr), m.QPN}
	toA := key{endsBetween(from.addr, to), s.qpn}
	if toB == toA {
		return false
	}
	for _, k := range []*key{&toB, &toA} {
		if old := t.index.get(k); old != nil {
			t.drop(old) // and so has its queue pair
		}
	}
	return t.announce(now, s, b, from, &toB, &toA, &m)
}

// announce enters the rows of a connection that has been answered.
func (t *Table) announce(now clock.Time, s *setup, b setupKey, from *host, toB, toA *key, m *mad.REP) bool {
	out := t.newRow(now, toB, s.host, from.addr)
	if out == nil {
		t.stats.NoRoom++
		return false
	}
	back := t.newRow(now, toA, from, s.a.owner)
	if back == nil {
		t.drop(out)
		t.stats.NoRoom++
		return false
	}
	t.pair(out, back)
	out.Expected, back.Expected = m.PSN, s.psn
	for _, r := range []*Row{out, back} {
		r.State, r.Synced, r.announced, r.setup = Connecting, true, true, s
		r.setMTU(s.mtu)
	}
	t.forgetSetup(s)
	s.b, s.qpnB, s.replied, s.toB, s.toA = b, m.QPN, true, out, back
	t.setups[s.a], t.setups[b] = s, s
	t.stats.Announced++
	return true
}

// rtu notes that the connection is used.
func (t *Table) rtu(from netip.Addr, body []byte) bool {
	var m mad.RTU
	if m.Parse(body) != nil {
		return false
	}
	s := t.setups[setupKey{from, m.LocalID}]
	if s == nil || !s.replied || s.a.owner != from || s.b.id != m.RemoteID {
		return false
	}
	s.toB.opened()
	s.toA.opened()
	return true
}

// named is the connection that a message from one end to the other is about; nil if there is none. An end that has not
// got the other's number yet says 0.
func (t *Table) named(from, to netip.Addr, local, remote mad.CommID) *setup {
	is := func(s *setup) bool {
		switch {
		case s == nil:
			return false
		case s.a.owner == from && s.b.owner == to:
			return s.a.id == local || local == 0
		case s.a.owner == to && s.b.owner == from:
			return !s.replied || s.b.id == local || local == 0
		}
		return false
	}
	mine, theirs := setupKey{from, local}, setupKey{to, remote}
	for _, s := range []*setup{t.setups[mine], t.setups[theirs], t.asked[mine], t.asked[theirs]} {
		if is(s) {
			return s
		}
	}
	return nil
}

// rej notes that a connection is refused. One that is in use is not ended by it.
func (t *Table) rej(from, to netip.Addr, body []byte) bool {
	var m mad.REJ
	if m.Parse(body) != nil {
		return false
	}
	s := t.named(from, to, m.LocalID, m.RemoteID)
	switch {
	case s == nil || s.replied && (s.toB.State != Connecting || s.toA.State != Connecting):
		return false
	case s.replied:
		t.drop(s.toB)
	default:
		t.forgetSetup(s)
	}
	return true
}

// dreq notes that an end wants to end a connection. It names the receiver's queue pair.
func (t *Table) dreq(from, to netip.Addr, body []byte) bool {
	var m mad.DREQ
	if m.Parse(body) != nil {
		return false
	}
	s := t.named(from, to, m.LocalID, m.RemoteID)
	if s == nil {
		return t.unnamed(from, to, m.QPN)
	}
	if !s.replied {
		return false
	}
	if out := s.toB; from == s.a.owner && m.QPN != out.RespQPN || from != s.a.owner && m.QPN != s.qpn {
		return false
	}
	for _, r := range []*Row{s.toB, s.toA} {
		if r.State != Closed {
			r.State = Closing
		}
	}
	return true
}

// unnamed notes that an end wants to end a connection that was made before the table looked, as it does when a program is loaded: its
// halves were paired by their packets, and the connection managers' numbers are not known, but the receiver's queue pair is.
func (t *Table) unnamed(from, to netip.Addr, qpn wire.QPN) bool {
	if from.Is4() != to.Is4() {
		return false
	}
	r := t.index.get(&key{endsBetween(from, to), qpn})
	if r == nil || r.Peer == nil || r.setup != nil || r.Peer.setup != nil || r.State != Open || r.Peer.State != Open {
		return false
	}
	r.State, r.Peer.State = Closing, Closing
	return true
}

// drep notes that a connection has ended.
func (t *Table) drep(now clock.Time, from, to netip.Addr, body []byte) bool {
	var m mad.DREP
	if m.Parse(body) != nil {
		return false
	}
	s := t.named(from, to, m.LocalID, m.RemoteID)
	if s == nil || !s.replied || s.toB.State != Closing {
		return false
	}
	t.end(now, s.toB)
	return true
}

// forgetSetup takes a connection out of the connection managers' names.
func (t *Table) forgetSetup(s *setup) {
	if !s.replied {
		delete(t.asked, s.a)
		s.host.setups--
		return
	}
	delete(t.setups, s.a)
	delete(t.setups, s.b)
	s.toB.setup, s.toA.setup = nil, nil
}

// expireSetups gives up requests that nobody answered.
func (t *Table) expireSetups(now clock.Time) {
	if now < t.setupSweep {
		return
	}
	t.setupSweep = now.Add(sweepEvery)
	for _, s := range t.asked {
		if now.Sub(s.at) >= setupTime {
			t.forgetSetup(s)
		}
	}
}
