package kvcs

import (
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// memberState is the state of a server at the coordinator:
//
//	waiting ── no change is in progress ──▶ copying ── has all changes ──▶ active
//	active ── no progress ──▶ fencing ── REKEY is OK, or leases are over ──▶ removed
//	copying ── no progress, or more than maxLog records wait ──▶ removed
//	all ── the server has begun again ──▶ removed
type memberState uint8

const (
	memberWaiting memberState = iota
	memberCopying
	memberActive
	memberFencing
)

// member is an instance of a server.
type member struct {
	addr     netip.AddrPort
	instance uint64
	region   nic.RegionID
	key      nic.Key
	state    memberState
	// snapshot is a copy of the table after the record at log position `start`. The server has the
	// first `copied` bytes of it. acked is the position of the last record that the server has
	// executed.
	snapshot      []byte
	start         uint64
	copied, acked uint64
	// sentCopy and sent are how far the coordinator has sent the copy and the records. resend is
	// when it sends again all that was not acknowledged. moved is when the server last made
	// progress.
	sentCopy, sent uint64
	resend, moved  clock.Time
	owed           bool // true if the member had not acknowledged everything when push last returned
	// granted is when a client last got a lease for a view with this member.
	granted clock.Time
	// fence is when the leases of all views with this member are over, if the state is
	// memberFencing. tag is the tag of the REKEY in progress; 0 means that there is none. next is
	// the new key of that REKEY.
	fence clock.Time
	tag   uint64
	next  nic.Key
}

// counts reports whether changes wait for the member.
func (m *member) counts() bool { return m.state == memberActive || m.state == memberFencing }

// owes reports whether the member still owes acknowledgements: of the copy of the table, if it is
// getting one, or of records of the log.
func (m *member) owes(c *Coordinator) bool {
	return m.state == memberCopying && m.copied < uint64(len(m.snapshot)) || m.acked < c.head()
}

// deadline returns when the coordinator must act for the member.
func (m *member) deadline(c *Coordinator) clock.Time {
	switch {
	case m.state == memberFencing:
		return m.fence
	case m.state == memberWaiting || !m.owes(c):
		return clock.Never
	}
	return clock.Min(m.resend, m.moved.Add(c.cfg.Patience))
}

// joined handles the request of a server to become a replica. A server that asks has replaced the
// key of its region, so clients cannot read the memory of its earlier instances any more.
func (c *Coordinator) joined(now clock.Time, from netip.AddrPort, x *message, out *Outbox) {
	if len(x.body) != len(nic.Key{}) || from.Port() != UDPPort {
		return
	}
	if x.id <= c.last[from.Addr()] {
		c.stale(from, x, out)
		return
	}
	if len(c.last) >= MaxReplicas && c.last[from.Addr()] == 0 {
		return
	}
	if m := c.member(from.Addr()); m != nil {
		if m.counts() {
			c.stats.Left++
		}
		c.remove(m)
	}
	c.last[from.Addr()] = x.id
	c.members = append(c.members, &member{addr: from, instance: x.id, region: nic.RegionID(x.region), key: nic.Key(x.body), moved: now})
}

// stale handles a message of an instance of a server that may not be a member any more. It tells
// the server to begin a new instance (msgRestart) if the instance is no member, is being fenced, or
// has a part of another store's table.
func (c *Coordinator) stale(from netip.AddrPort, x *message, out *Outbox) {
	if m := c.member(from.Addr()); m == nil || m.instance != x.id || m.state == memberFencing || x.store != 0 && x.store != c.store {
		c.send(from, &message{kind: msgRestart, id: x.id}, out)
	}
}

// member returns the member with an address; nil if there is none.
func (c *Coordinator) member(a netip.Addr) *member {
	if i := slices.IndexFunc(c.members, func(m *member) bool { return m.addr.Addr() == a }); i >= 0 {
		return c.members[i]
	}
	return nil
}

// remove forgets a member. The caller has made sure that no client can read the member any more.
func (c *Coordinator) remove(m *member) {
	if m.state == memberActive {
		c.epoch++
	}
	c.members = slices.DeleteFunc(c.members, func(x *member) bool { return x == m })
}

// progress handles the acknowledgement of a server.
func (c *Coordinator) progress(now clock.Time, from netip.AddrPort, x *message, out *Outbox) {
	m := c.member(from.Addr())
	switch {
	case from.Port() != UDPPort:
		return
	case m == nil || m.instance != x.id || x.store != c.store:
		c.stale(from, x, out)
		return
	case m.state == memberFencing || m.state == memberWaiting || x.number > c.head():
		return
	}
	if at := uint64(x.at); m.state == memberCopying && at > m.copied && at <= uint64(len(m.snapshot)) {
		m.copied, m.moved, m.resend = at, now, now.Add(c.resendAfter())
		m.sentCopy = max(m.sentCopy, at)
	}
	if x.number > m.acked && m.copied == uint64(len(m.snapshot)) {
		m.acked, m.moved, m.resend = x.number, now, now.Add(c.resendAfter())
		m.sent = max(m.sent, x.number) // trim may remove these records from the log, so push must not send them
	}
}

func (c *Coordinator) resendAfter() time.Duration { return 4 * c.cfg.RTT }

// copyAll takes a copy of the table for the servers that wait for it, if no change is in progress.
func (c *Coordinator) copyAll(now clock.Time) {
	if len(c.active) > 0 {
		return
	}
	for _, m := range c.members {
		if m.state == memberWaiting {
			m.state, m.snapshot, m.start, m.acked, m.sent = memberCopying, slices.Clone(c.memory), c.head(), c.head(), c.head()
			m.moved, m.resend = now, now.Add(c.resendAfter())
		}
	}
}

// admit makes a server a replica when it has its whole copy of the table and has executed all
// changes that have taken effect. From then on, each change in progress waits for it, too.
func (c *Coordinator) admit() {
	for _, m := range c.members {
		if m.state == memberCopying && m.copied == uint64(len(m.snapshot)) && m.acked >= c.effective {
			m.state, m.snapshot = memberActive, nil
			m.copied, m.sentCopy = 0, 0
			c.epoch++
			c.stats.Joined++
		}
	}
}

// push sends a member as much of its copy of the table, and as many records, as may be in flight
// (copyWindow, sendWindow).
func (c *Coordinator) push(now clock.Time, m *member, out *Outbox) {
	if m.state != memberCopying && m.state != memberActive {
		return
	}
	for m.sentCopy < uint64(len(m.snapshot)) && m.sentCopy < m.copied+copyWindow {
		end := min(m.sentCopy+copyChunk, uint64(len(m.snapshot)))
		c.send(m.addr, &message{
			kind: msgCopy, id: m.instance, number: m.start, at: uint32(m.sentCopy), region: uint32(len(m.snapshot)), body: m.snapshot[m.sentCopy:end],
		}, out)
		m.sentCopy = end
	}
	for m.copied == uint64(len(m.snapshot)) && m.sent < c.head() && m.sent < m.acked+sendWindow {
		m.sent++
		r := &c.log[m.sent-c.base]
		c.send(m.addr, &message{kind: msgRecord, id: m.instance, number: m.sent, op: uint8(r.step), key: r.key, body: r.value}, out)
	}
	owes := m.owes(c)
	if owes && !m.owed {
		m.moved, m.resend = now, now.Add(c.resendAfter())
	}
	m.owed = owes
}

// watch handles the timers of a member.
func (c *Coordinator) watch(now clock.Time, m *member, out *Outbox) {
	switch {
	case m.state == memberFencing && now >= m.fence:
		c.stats.Expired++
		c.remove(m)
	case m.state == memberFencing || m.state == memberWaiting || !m.owes(c):
	case now >= m.moved.Add(c.cfg.Patience) && m.state == memberCopying:
		c.remove(m) // no client knows this member, so it needs no fence
	case now >= m.moved.Add(c.cfg.Patience):
		c.fence(now, m, out)
	case now >= m.resend:
		m.sentCopy, m.sent, m.resend = m.copied, m.acked, now.Add(c.resendAfter())
	}
}

// fence makes sure that no client can read a member: by a REKEY, or when all leases are over. It
// allows for clients' clocks that are slower than the coordinator's clock by 3 %.
func (c *Coordinator) fence(now clock.Time, m *member, out *Outbox) {
	c.epoch++
	c.stats.Fenced++
	m.state, m.fence = memberFencing, m.granted.Add(c.cfg.Lease+c.cfg.Lease/32)
	if m.fence <= now {
		return
	}
	for i := range m.next {
		m.next[i] = byte(c.cfg.Rand.Uint32())
	}
	c.rekey(m, out)
}

func (c *Coordinator) rekey(m *member, out *Outbox) {
	c.tag++
	m.tag = c.tag
	out.Rekeys = append(out.Rekeys, rekeyOf(m.tag, m, c.cfg.Addr, c.cfg.PID, m.next))
}

// Rekeyed handles the end of a REKEY with status s. A REKEY that has failed is issued again until
// the leases are over, because it may succeed before that.
func (c *Coordinator) Rekeyed(now clock.Time, tag uint64, s nic.Status, out *Outbox) {
	i := slices.IndexFunc(c.members, func(m *member) bool { return m.state == memberFencing && m.tag == tag })
	if i < 0 {
		return
	}
	if m := c.members[i]; s == nic.OK {
		c.stats.Rekeyed++
		c.remove(m)
	} else if now < m.fence {
		c.rekey(m, out)
	}
	c.advance(now, out)
}
