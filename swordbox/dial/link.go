package dial

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
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/record"
)

// link is one connection that is wanted, or was until its end is known.
type link struct {
	Key
	target  Target
	want    bool
	adopted bool
	state   State
	shared  Shared // what will be or is up

	// Of the present attempt.
	owner uint64
	conn  mad.CommID
	asked verbs.MTU
	slot  record.Slot
	peer  mad.CommID // the server's number of the connection

	largest  verbs.MTU // that the server can do; 0: not known
	attempts int
	since    clock.Time // when it was up
	flaps    int        // how often in a row it failed soon after
	err      string
	next     clock.Time
}

// Bounds of the pause between two attempts; it doubles.
const (
	minBackOff = 10 * time.Millisecond
	maxBackOff = time.Second
	// soon is how long a connection must live so that its failure is nothing to be careful about.
	soon = time.Second
	// maxShift bounds the exponent of a pause.
	maxShift = 7
)

// backOff is the pause before the n-th attempt that follows a failure, from 0.
func backOff(n int) time.Duration { return min(maxBackOff, minBackOff<<min(n, maxShift)) }

// Numbers of queue pairs that the switch gives itself; 0 and 1 are special, and the last one is the multicast one.
const (
	firstQPN, lastQPN = 0x10, 0xfffffe
	// maxQPNTries bounds the search for a free one.
	maxQPNTries = 64
)

// newQPN draws a number that no connection has; a former life's are not likely to come again.
func (d *Dialer) newQPN() (wire.QPN, bool) {
	for range maxQPNTries {
		n := wire.QPN(firstQPN + d.cfg.Rand.IntN(lastQPN-firstQPN+1))
		if _, taken := d.m.ConnOf(n); !taken && d.byQPN[n] == nil {
			return n, true
		}
	}
	return 0, false
}

// dial makes one attempt.
func (d *Dialer) dial(c *pipeline.Ctx, l *link) {
	d.stats.Dialed++
	qpn, ok := d.newQPN()
	if !ok {
		d.failed(c, l, "no queue pair number is free")
		return
	}
	d.gen++
	s := Shared{Key: l.Key, Generation: d.gen, OwnQPN: qpn, RecvPSN: wire.PSN(d.cfg.Rand.Uint32()).Add(0), Depth: l.target.depth()}
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
	l.owner, l.shared, l.state = d.owners, s, Dialing
	d.byConn[l.owner], d.byQPN[qpn] = l, l
	l.conn, err = d.m.Connect(c.Now, l.owner, d.own(l.Server), l.Server, req, &d.acts)
	if err != nil {
		d.failed(c, l, err.Error())
		return
	}
	d.carryOut(c)
}

// mtu is the path MTU to ask for.
func (d *Dialer) mtu(l *link) verbs.MTU {
	const v4, v6 = 64, 84 // IP, UDP, BTH, the largest extension and ICRC
	over := v4
	if l.Server.Is6() {
		over = v6
	}
	largest := verbs.MTU256
	for m := verbs.MTU4096; m > verbs.MTU256; m /= 2 {
		if int(m)+over <= d.cfg.LinkMTU {
			largest = m
			break
		}
	}
	if l.target.MTU != 0 {
		largest = min(largest, verbs.MTU(l.target.MTU))
	}
	if l.largest != 0 {
		largest = min(largest, l.largest)
	}
	return largest
}

// request is the REQ of an attempt. It is that of an ordinary client.
func (d *Dialer) request(l *link, s *Shared) (mad.REQ, error) {
	const (
		retry      = 7
		ackTimeout = 14 // 67 ms
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

// accepted brings a connection up after the server's REP.
func (d *Dialer) accepted(c *pipeline.Ctx, l *link, rep *mad.REP) {
	_, mtu, err := cm.ServiceOf(l.target.Service).ParseReply(rep, l.asked)
	switch {
	case err != nil:
	case rep.QPN < 2 || rep.QPN > lastQPN:
		err = fmt.Errorf("the server answers with queue pair %#x", uint32(rep.QPN))
	default:
		l.peer = rep.LocalID
		l.slot, err = d.cfg.Record.Dial(d.recorded(l, rep.QPN))
	}
	if err == nil {
		err = d.m.Ready(l.conn, &d.acts)
	}
	if err != nil {
		_ = d.m.Reject(c.Now, l.conn, cm.Refusal{Reason: mad.ReasonConsumer}, &d.acts) // it may have ended already
		d.cfg.Record.EndConn(l.slot)
		l.slot = 0
		d.failed(c, l, err.Error())
		return
	}
	s := l.shared
	s.ServerQPN, s.SendPSN, s.MTU = rep.QPN, rep.PSN.Add(0), int(mtu)
	s.Depth = min(s.Depth, int(rep.ResponderResources))
	s.To.BTH.DestQP = rep.QPN
	d.stats.Established++
	l.since = c.Now
	d.up(l, s)
}

func (d *Dialer) recorded(l *link, qpn wire.QPN) record.Conn {
	return record.Conn{Server: l.Server, OwnID: uint32(l.conn), ServerID: uint32(l.peer), ServerQPN: qpn}
}

// up tells the user.
func (d *Dialer) up(l *link, s Shared) {
	if s.Adopted {
		d.gen++
		s.Generation = d.gen
	}
	l.state, l.shared, l.attempts, l.err = Up, s, 0, ""
	d.byQPN[s.OwnQPN] = l
	d.events = append(d.events, Event{Kind: EventUp, Shared: s})
}

// failed ends an attempt; another one is made later.
func (d *Dialer) failed(c *pipeline.Ctx, l *link, why string) {
	d.stats.Failed++
	d.release(l)
	l.state, l.err = Waiting, why
	l.next = c.Now.Add(backOff(l.attempts))
	l.attempts++
}

// release forgets the connection of a link in the tables.
func (d *Dialer) release(l *link) {
	delete(d.byConn, l.owner)
	if d.byQPN[l.shared.OwnQPN] == l {
		delete(d.byQPN, l.shared.OwnQPN)
	}
	l.owner, l.conn = 0, 0
}

// end ends what a link has or is about to have. Its successor waits until the server knows.
func (d *Dialer) end(c *pipeline.Ctx, l *link, why string) {
	switch l.state {
	case Up:
		d.events = append(d.events, Event{Kind: EventDown, Shared: l.shared, Reason: why})
		if l.adopted {
			d.release(l)
			l.want, l.state = false, Waiting // who made it must say what takes its place
			return
		}
		f := &former{conn: d.recorded(l, l.shared.ServerQPN), link: l, next: c.Now.Add(dreqPatience)}
		f.conn.Slot, l.slot = l.slot, 0
		d.former = append(d.former, f)
		l.state, l.err, l.next = Ending, why, c.Now
		if c.Now.Sub(l.since) < soon {
			l.next = c.Now.Add(backOff(l.flaps))
			l.flaps++
		} else {
			l.flaps = 0
		}
		d.m.Abort(c.Now, l.conn, &d.acts)
	case Dialing:
		d.m.Abort(c.Now, l.conn, &d.acts)
		l.state = Waiting
	case Waiting, Ending:
		return
	}
	d.release(l)
	d.carryOut(c)
}

// lost is the server's end of a connection: no request can reach it any more.
func (d *Dialer) lost(c *pipeline.Ctx, l *link, why string) {
	d.stats.Lost++
	d.events = append(d.events, Event{Kind: EventDown, Shared: l.shared, Reason: why})
	d.cfg.Record.EndConn(l.slot)
	l.slot = 0
	d.failed(c, l, why)
	d.sweep(l)
}

// sweep forgets a link that nobody wants and that has nothing to end.
func (d *Dialer) sweep(l *link) {
	if l.want || l.state != Waiting {
		return
	}
	delete(d.byKey, l.Key)
	d.links = slices.DeleteFunc(d.links, func(o *link) bool { return o == l })
}

// own is the switch's address towards a server.
func (d *Dialer) own(server netip.Addr) netip.Addr {
	if server.Is4() {
		return d.cfg.IPv4
	}
	return d.cfg.IPv6
}
