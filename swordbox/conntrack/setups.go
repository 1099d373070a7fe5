package conntrack

import (
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Bounds of the handshakes that the table remembers.
const (
	// setupTime is how long the table waits for the REP to a REQ. A connection manager stops
	// retransmitting a REQ before that.
	setupTime = time.Minute
	// maxSetupsPerHost is how many REQs of one host the table remembers while they have no REP.
	maxSetupsPerHost = 1024
)

// gsi is the queue pair of the connection manager's datagrams.
const gsi wire.QPN = 1

// setupKey names a connection by the communication ID that one of its ends, owner, has given it.
type setupKey struct {
	owner netip.Addr
	id    mad.CommID
}

// setup is the handshake of a connection. End a is the one whose connection manager sent the REQ;
// end b sent the REP.
type setup struct {
	a, b     setupKey   // b.id is valid if replied
	host     *host      // host of end a
	qpn      wire.QPN   // queue pair of end a
	psn      wire.PSN   // the first PSN that a expects from b
	mtu      int        // path MTU in bytes
	at       clock.Time // when the REQ last arrived
	replied  bool       // true if the table has seen the REP
	qpnB     wire.QPN   // queue pair of end b; valid if replied
	toB, toA *Flow      // the flows with the requests to b and to a; valid if replied
}

// setups holds the handshakes that the table has seen.
type setups struct {
	// asked holds the REQs without a REP, by the key of their sender. known holds the handshakes
	// with a REP, under the keys of both ends.
	asked, known map[setupKey]*setup
	max          int        // the largest number of entries in asked
	sweepAt      clock.Time // expire does nothing before this time
	stats        *Stats
}

func newSetups(max int, stats *Stats) setups {
	return setups{asked: make(map[setupKey]*setup), known: make(map[setupKey]*setup), max: max, stats: stats}
}

// request handles a REQ. The result is true if the table has recorded the REQ, now or before.
func (t *setups) request(now clock.Time, from *host, to netip.Addr, body []byte) bool {
	var m mad.REQ
	if m.Parse(body) != nil || m.Type != 0 || m.QPN <= gsi || mtuOf(m.MTU) == 0 {
		return false
	}
	if netip.AddrFrom16(m.Primary.LocalGID).Unmap() != from.addr || netip.AddrFrom16(m.Primary.RemoteGID).Unmap() != to {
		return false // the REQ names other addresses than those of the datagram
	}
	k := setupKey{from.addr, m.LocalID}
	for _, s := range []*setup{t.asked[k], t.known[k]} {
		if s != nil && s.a == k && s.b.owner == to && s.qpn == m.QPN && s.psn == m.PSN {
			s.at = now
			return true // a retransmission
		}
	}
	if old := t.asked[k]; old != nil {
		t.forget(old)
	}
	if from.setups >= maxSetupsPerHost || len(t.asked) >= t.max {
		t.stats.NoRoom++
		return false
	}
	t.asked[k] = &setup{a: k, b: setupKey{owner: to}, host: from, qpn: m.QPN, psn: m.PSN, mtu: mtuOf(m.MTU), at: now}
	from.setups++
	return true
}

// replied moves a handshake from asked to known. It is called when b has sent the REP, and after
// the two flows were created.
func (t *setups) replied(s *setup, b setupKey, qpn wire.QPN, toB, toA *Flow) {
	t.forget(s)
	s.b, s.qpnB, s.replied, s.toB, s.toA = b, qpn, true, toB, toA
	t.known[s.a], t.known[b] = s, s
	toB.setup, toA.setup = s, s
}

// established handles an RTU: it passes evUsed to both flows of the handshake. It returns false
// unless the table has seen the REP of this handshake, and its end a has sent the RTU.
func (t *setups) established(from netip.Addr, body []byte) bool {
	var m mad.RTU
	if m.Parse(body) != nil {
		return false
	}
	s := t.known[setupKey{from, m.LocalID}]
	if s == nil || s.a.owner != from || s.b.id != m.RemoteID {
		return false
	}
	s.on(evUsed)
	return true
}

// on passes an event to the state machines of both flows of a handshake with a REP.
func (s *setup) on(e event) {
	s.toB.State.on(e)
	s.toA.State.on(e)
}

// find returns the handshake of the connection that a message between the two ends names; nil if
// there is none. An end that does not know the other end's communication ID yet sends 0.
func (t *setups) find(from, to netip.Addr, local, remote mad.CommID) *setup {
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
	for _, s := range []*setup{t.known[mine], t.known[theirs], t.asked[mine], t.asked[theirs]} {
		if is(s) {
			return s
		}
	}
	return nil
}

// forget removes a handshake. Its flows stay.
func (t *setups) forget(s *setup) {
	if !s.replied {
		delete(t.asked, s.a)
		s.host.setups--
		return
	}
	delete(t.known, s.a)
	delete(t.known, s.b)
	s.toB.setup, s.toA.setup = nil, nil
}

// expire removes the REQs that got no REP within setupTime.
func (t *setups) expire(now clock.Time) {
	if now < t.sweepAt {
		return
	}
	t.sweepAt = now.Add(sweepEvery)
	for _, s := range t.asked {
		if now.Sub(s.at) >= setupTime {
			t.forget(s)
		}
	}
}
