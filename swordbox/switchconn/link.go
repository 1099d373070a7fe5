package switchconn

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/journal"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// link is a wanted connection, or one whose end the server has not confirmed.
type link struct {
	Key
	target  Target
	want    bool // true if Want or Adopt was called for the connection
	adopted bool // true if Adopt was called for the connection
	state   State
	shared  Shared // the connection, in states Dialing and Up

	attempt
	history
}

// attempt is the handshake that made the present connection, or that is making it.
type attempt struct {
	made  Target       // what the attempt asks for
	owner uint64       // names the link in calls of the connection manager; 0 means no attempt
	conn  mad.CommID   // communication ID of the switch
	peer  mad.CommID   // communication ID of the server
	asked verbs.MTU    // the path MTU in the REQ
	slot  journal.Slot // entry of the connection in the journal
}

// history is what a link knows about its earlier attempts and connections.
type history struct {
	largest  verbs.MTU  // the largest MTU that the server supports; 0 means not known
	attempts int        // how many attempts have failed since the connection was last up
	err      string     // the error of the last attempt
	next     clock.Time // when the next attempt begins
	since    clock.Time // when the connection last came up
	flaps    int        // how many connections in succession failed soon after they came up
}

// Bounds of the pause between two attempts. The pause doubles with each failure.
const (
	minBackOff = 10 * time.Millisecond
	maxBackOff = time.Second
	// soon is how long a connection must have been up to count as stable. When a stable connection
	// fails, the next attempt is made at once.
	soon = time.Second
	// maxShift bounds the exponent in backOff. minBackOff<<maxShift is more than maxBackOff.
	maxShift = 7
)

// backOff returns the pause after failure n in succession, counted from 0.
func backOff(n int) time.Duration { return min(maxBackOff, minBackOff<<min(n, maxShift)) }

// QPNs of the switch. QPNs 0 and 1 belong to management, and 0xffffff means multicast.
const (
	firstQPN, lastQPN = 0x10, 0xfffffe
	// maxQPNTries bounds the search for a free QPN.
	maxQPNTries = 64
)

// newQPN returns a random QPN that no connection of the switch has. A former incarnation is
// unlikely to have used it. The bool is false if the search found none.
func (d *Dialer) newQPN() (wire.QPN, bool) {
	for range maxQPNTries {
		n := wire.QPN(firstQPN + d.cfg.Rand.IntN(lastQPN-firstQPN+1))
		if _, taken := d.m.ConnOf(n); !taken && d.byQPN[n] == nil {
			return n, true
		}
	}
	return 0, false
}

func (d *Dialer) dial(c *pipeline.Ctx, l *link) {
	d.stats.Dialed++
	qpn, ok := d.newQPN()
	if !ok {
		d.failed(c, l, "no QPN is free")
		return
	}
	d.gen++
	s := Shared{
		Key: l.Key, Generation: d.gen, OwnQPN: qpn, RecvPSN: wire.PSN(d.cfg.Rand.Uint32()).Add(0), Depth: l.target.depth(),
	}
	if err := d.path(&s); err != nil {
		d.failed(c, l, err.Error())
		return
	}
	l.asked = d.mtu(l)
	req, err := d.request(l, &s)
	if err != nil {
		d.failed(c, l, err.Error())
		return
	}
	d.owners++
	l.owner, l.shared, l.made = d.owners, s, l.target
	l.state.on(chDial)
	d.byConn[l.owner], d.byQPN[qpn] = l, l
	l.conn, err = d.m.Connect(c.Now, l.owner, d.own(l.Server), l.Server, req, &d.acts)
	if err != nil {
		d.failed(c, l, err.Error())
		return
	}
	d.carryOut(c)
}

// mtu returns the path MTU that the switch requests.
func (d *Dialer) mtu(l *link) verbs.MTU {
	const v4, v6 = 64, 84 // bytes of IP, UDP, BTH, RETH, immediate data and ICRC
	over := v4
	if l.Server.Is6() {
		over = v6
	}
	largest := verbs.MTU4096
	for largest > verbs.MTU256 && int(largest)+over > d.cfg.LinkMTU {
		largest /= 2
	}
	if l.target.MTU != 0 {
		largest = min(largest, verbs.MTU(l.target.MTU))
	}
	if l.largest != 0 {
		largest = min(largest, l.largest)
	}
	return largest
}

// request returns the REQ of an attempt. It is like the REQ of any client.
func (d *Dialer) request(l *link, s *Shared) (mad.REQ, error) {
	const (
		retry      = 7
		ackTimeout = 15 // 134 ms, the value that rdmacm uses
	)
	service := cm.ServiceOf(l.target.Service)
	port := uint16(firstPort | d.cfg.Rand.Uint32())
	private, err := service.Request(nil, d.own(l.Server), l.Server, port)
	depth := uint8(min(s.Depth, 255))
	return mad.REQ{
		Service: service.ID, QPN: s.OwnQPN, PSN: s.RecvPSN, ResponderResources: depth, InitiatorDepth: depth,
		Retry: retry, RNRRetry: retry, PKey: wire.DefaultPKey, MTU: cm.MTUCode(l.asked), Private: private,
		Primary: mad.Path{AckTimeout: ackTimeout, HopLimit: ttl},
	}, err
}

// accepted handles the REP of the server: the connection is up.
func (d *Dialer) accepted(c *pipeline.Ctx, l *link, rep *mad.REP) {
	answer, mtu, err := cm.ServiceOf(l.target.Service).ParseReply(rep, l.asked)
	switch {
	case err != nil:
	case rep.QPN < 2 || rep.QPN > lastQPN:
		err = fmt.Errorf("the server answers with the invalid queue pair %#x", uint32(rep.QPN))
	default:
		l.peer = rep.LocalID
		l.slot, err = d.cfg.Journal.Dial(l.recorded(rep.QPN))
	}
	if err == nil {
		err = d.m.Ready(l.conn, &d.acts)
	}
	if err != nil {
		// Reject fails if the server has ended the connection already.
		_ = d.m.Reject(c.Now, l.conn, cm.Refusal{Reason: mad.ReasonConsumer}, &d.acts)
		d.cfg.Journal.EndConn(l.slot)
		l.slot = 0
		d.failed(c, l, err.Error())
		return
	}
	s := l.shared
	s.ServerQPN, s.SendPSN, s.MTU = rep.QPN, rep.PSN.Add(0), int(mtu)
	s.Depth, s.Answer = min(s.Depth, int(rep.ResponderResources)), slices.Clone(answer)
	s.To.BTH.DestQP = rep.QPN
	d.stats.Established++
	l.since = c.Now
	d.up(l, s)
}

// recorded returns the journal's entry for the connection of the link.
func (l *link) recorded(qpn wire.QPN) journal.Conn {
	return journal.Conn{Server: l.Server, OwnID: uint32(l.conn), ServerID: uint32(l.peer), ServerQPN: qpn}
}

// up makes a connection usable.
func (d *Dialer) up(l *link, s Shared) {
	if s.Adopted {
		d.gen++
		s.Generation = d.gen
	}
	l.state.on(chUp)
	l.shared, l.attempts, l.err = s, 0, ""
	d.byQPN[s.OwnQPN] = l
	d.events = append(d.events, Event{Kind: EventUp, Shared: s})
}

// failed ends an attempt or a connection. The Dialer makes the next attempt after a pause.
func (d *Dialer) failed(c *pipeline.Ctx, l *link, why string) {
	d.stats.Failed++
	d.release(l)
	l.state.on(chFailed)
	l.err = why
	l.next = c.Now.Add(backOff(l.attempts))
	l.attempts++
}

// release removes the connection of a link from the tables.
func (d *Dialer) release(l *link) {
	delete(d.byConn, l.owner)
	if d.byQPN[l.shared.OwnQPN] == l {
		delete(d.byQPN, l.shared.OwnQPN)
	}
	l.owner, l.conn = 0, 0
}

// end ends the connection of a link, or its attempt to make one. When it has ended a connection, the
// next attempt waits until the server has confirmed the end (DREP), or maxTransit has passed. An
// adopted connection is only forgotten.
func (d *Dialer) end(c *pipeline.Ctx, l *link, why string) {
	switch l.state {
	case Up:
		d.events = append(d.events, Event{Kind: EventDown, Shared: l.shared, Reason: why})
		if l.adopted {
			d.release(l)
			l.want = false // the operator adopts another connection, or the user calls Want again
			l.state.on(chRemoved)
			return
		}
		f := &former{conn: l.recorded(l.shared.ServerQPN), link: l, next: c.Now.Add(dreqTimeout)}
		f.conn.Slot, l.slot = l.slot, 0
		d.former = append(d.former, f)
		l.state.on(chEnd)
		l.err, l.next = why, c.Now
		if c.Now.Sub(l.since) < soon {
			l.next = c.Now.Add(backOff(l.flaps))
			l.flaps++
		} else {
			l.flaps = 0
		}
		d.m.Abort(c.Now, l.conn, &d.acts)
	case Dialing:
		d.m.Abort(c.Now, l.conn, &d.acts)
		l.state.on(chEnd)
	case Waiting, Ending:
		return
	}
	d.release(l)
	d.carryOut(c)
}

// lost is called when the server has ended the connection. The server executes no more requests on
// it.
func (d *Dialer) lost(c *pipeline.Ctx, l *link, why string) {
	d.stats.Lost++
	d.events = append(d.events, Event{Kind: EventDown, Shared: l.shared, Reason: why})
	d.cfg.Journal.EndConn(l.slot)
	l.slot = 0
	d.failed(c, l, why)
	d.sweep(l)
}

// sweep forgets a link if it is not wanted and has no connection.
func (d *Dialer) sweep(l *link) {
	if l.want || l.state != Waiting {
		return
	}
	delete(d.byKey, l.Key)
	d.links = slices.DeleteFunc(d.links, func(o *link) bool { return o == l })
}

// own returns the switch's address of the same family (IPv4 or IPv6) as the server's address.
func (d *Dialer) own(server netip.Addr) netip.Addr {
	if server.Is4() {
		return d.cfg.IPv4
	}
	return d.cfg.IPv6
}

func (d *Dialer) States(visit func(table string, entry uint32, state string)) {
	for _, l := range d.links {
		visit("switch connection", uint32(l.Shard), l.state.String())
	}
}
