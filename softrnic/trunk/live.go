package trunk

import (
	"cmp"
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// kept is how many of the last round trips an end keeps.
const kept = 32

// liveness is what an end knows of its peer from probes.
type liveness struct {
	heard     clock.Time // when something came that was sealed with a key
	due       clock.Time // when the next probe is
	strange   uint64     // what strangers had sent until then
	peerHears bool       // the last probe said so
	// long is the longest datagram with a probe that has come since the last probe was sent. peerSent and
	// received are of the last probe.
	long               uint16
	peerSent, received int64
	trips, ahead       [kept]int64 // round trips and clock differences, in nanoseconds
	count              int         // of all
}

// probe sends a probe as a datagram of length bytes; 0 means without padding.
func (e *End) probe(now clock.Time, s *session, length int, hears bool, out *Out) {
	d := make([]byte, max(length, headerLen+probeLen+tagLen))
	l := &e.live
	p := probe{hears: hears, long: l.long, sent: e.wall(now), peerSent: l.peerSent, received: l.received, unsent: s.unsent}
	p.put(d[headerLen : len(d)-tagLen])
	h := header{version: Version, kind: kindProbe, epoch: s.out, rack: e.id.rack}
	if length > 0 {
		s.sealPadded(&h, d)
	} else {
		s.seal(&h, d)
	}
	l.long = 0
	e.stats.Sent++
	out.Datagrams = append(out.Datagrams, d)
}

func (e *End) wall(now clock.Time) int64 { return e.cfg.Wall + int64(now) }

// longestTrip is the longest round trip that an end believes in.
const longestTrip = 10 * time.Second

// probed takes a probe of the peer that came in a datagram of length bytes.
func (e *End) probed(now clock.Time, p *probe, length int) {
	l := &e.live
	if p.hears != l.peerHears {
		l.peerHears, l.due = p.hears, now
	}
	l.peerSent, l.received = p.sent, e.wall(now)
	if length > headerLen+probeLen+tagLen {
		l.long = max(l.long, uint16(length))
		l.due = now // the peer waits for the answer
	}
	if p.long > 0 {
		e.mtu.reached(now, int(p.long)+e.overIP())
	}
	trip := (l.received - p.peerSent) - (p.sent - p.received)
	if p.peerSent == 0 || p.received == 0 || trip < 0 || trip > int64(longestTrip) {
		return
	}
	l.trips[l.count%kept] = trip
	l.ahead[l.count%kept] = ((p.received - p.peerSent) + (p.sent - l.received)) / 2
	l.count++
}

// measured fills in what the probes have shown.
func (l *liveness) measured(s *Stats) {
	if l.count == 0 {
		return
	}
	s.RoundTrip = time.Duration(l.trips[(l.count-1)%kept])
	best := 0
	for i := range min(l.count, kept) {
		if l.trips[i] < l.trips[best] {
			best = i
		}
	}
	s.Shortest, s.Ahead = time.Duration(l.trips[best]), time.Duration(l.ahead[best])
}

// strange returns how many datagrams were refused that belong to another rack, or have another secret.
func (r *Refused) strange() uint64 { return r.OtherRack + r.BadTag }

// trouble says why the trunk does not work; "" if it works.
func (e *End) trouble() string {
	switch {
	case e.Working():
		return ""
	case e.state == Off:
		return "the trunk is cut at this end: restore it with rdmalab link " + e.cfg.Trunk + " up"
	case e.state == Up:
		return "the other end does not hear this one: look at firewalls between the two, and at the other switch"
	case e.peerVersion != 0:
		return fmt.Sprintf("the other end speaks version %d of the trunk's protocol, and this one version %d: install the same rdmalab on both machines", e.peerVersion, Version)
	case e.stats.Refused.strange() > e.live.strange:
		return "what comes belongs to another rack, or was made with another secret: apply the rack to both machines again"
	case e.state == Proving:
		return "the ends have agreed on a key, and nothing has come yet"
	}
	return "the other end does not answer: look whether its switch runs, and whether " + cmp.Or(e.cfg.Carrier, "UDP") + " passes between the two"
}
