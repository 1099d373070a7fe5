package dial

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/record"
)

const (
	// gsiQPN is the general services queue pair, to which all management datagrams go (IBTA 3.9.4), gsiQKey its Q_Key
	// (IBTA 10.2.5).
	gsiQPN  = wire.QPN(1)
	gsiQKey = 0x80010000
	// firstPort is the first UDP source port that the switch sends from.
	firstPort = 0xc000
	ttl       = 64
)

// path fills in how packets reach the server, at the MAC address in To if there is one.
func (d *Dialer) path(s *Shared) error {
	own := d.own(s.Server)
	if !own.IsValid() {
		return fmt.Errorf("the switch has no address of the family of %v", s.Server)
	}
	mac := s.To.Eth.Dst
	if mac == (wire.MAC{}) {
		var ok bool
		if mac, ok = d.cfg.Resolve(s.Server); !ok {
			return fmt.Errorf("nobody knows the MAC address of %v", s.Server)
		}
	}
	s.To = wire.Frame{}
	headers(&s.To, d.cfg.MAC, mac, own, s.Server)
	s.To.UDP.SrcPort = firstPort | uint16(s.OwnQPN) // constant for the connection, and different ones take different ways
	s.To.BTH.PKey, s.To.BTH.DestQP = wire.DefaultPKey, s.ServerQPN
	return nil
}

func headers(f *wire.Frame, src, dst wire.MAC, from, to netip.Addr) {
	f.Eth = wire.Ethernet{Dst: dst, Src: src, Type: wire.EtherTypeIPv4}
	if from.Is6() {
		f.V6 = true
		f.Eth.Type = wire.EtherTypeIPv6
		f.IPv6 = wire.IPv6{HopLimit: ttl, NextHeader: wire.ProtocolUDP, Src: from.As16(), Dst: to.As16()}
	} else {
		f.IPv4 = wire.IPv4{TTL: ttl, DF: true, Protocol: wire.ProtocolUDP, Src: from.As4(), Dst: to.As4()}
	}
	f.UDP = wire.UDP{SrcPort: firstPort, DstPort: wire.UDPPort}
}

// Packet takes a packet to queue pair 1 of the switch, whose ICRC is right. It reports whether it was a datagram for the
// connection manager.
func (d *Dialer) Packet(c *pipeline.Ctx, f *wire.Frame) bool {
	if f.BTH.DestQP != gsiQPN || f.BTH.Opcode != wire.UDSendOnly || f.DETH.SrcQP != gsiQPN || f.DETH.QKey != gsiQKey {
		return false
	}
	local, peer := f.DstAddr().Unmap(), f.SrcAddr().Unmap()
	if local != d.cfg.IPv4 && local != d.cfg.IPv6 {
		return false
	}
	d.agreed(peer, f.Payload)
	d.m.Handle(c.Now, local, peer, f.Payload, &d.acts)
	d.carryOut(c)
	return true
}

// carryOut does what the connection manager asks for.
func (d *Dialer) carryOut(c *pipeline.Ctx) {
	// Events make more actions, at the end of both lists.
	for i := 0; i < len(d.acts.Events); i++ {
		d.event(c, d.acts.Events[i])
	}
	for i := range d.acts.Tx {
		d.transmit(c, &d.acts.Tx[i])
	}
	d.acts.Reset()
}

// event is news of the connection manager.
func (d *Dialer) event(c *pipeline.Ctx, e cm.Event) {
	l := d.byConn[e.Owner]
	if l == nil || l.conn != e.Conn && l.state != Dialing {
		return
	}
	switch e.Kind {
	case cm.EventReply:
		if rep, ok := e.Message.(*mad.REP); ok && l.state == Dialing {
			d.accepted(c, l, rep)
		}
	case cm.EventRejected:
		rej, _ := e.Message.(*mad.REJ)
		d.rejected(c, l, rej)
	case cm.EventUnreachable:
		d.failed(c, l, "the server does not answer")
	case cm.EventDisconnected:
		if l.state == Up {
			d.lost(c, l, "the server has ended it")
		}
	case cm.EventRequest, cm.EventEstablished, cm.EventClosed, cm.EventResolve, cm.EventResolved:
	}
}

// rejected notes why.
func (d *Dialer) rejected(c *pipeline.Ctx, l *link, rej *mad.REJ) {
	why := "the server refuses"
	if rej != nil {
		why += ": " + rej.Reason.String()
		switch {
		case rej.Reason == mad.ReasonInvalidService:
			why += fmt.Sprintf(" (nobody there listens to %q)", l.target.Service)
		case rej.Reason == mad.ReasonInvalidMTU && rej.InfoLen > 0 && cm.MTUOf(rej.Info[0]) != 0:
			l.largest = cm.MTUOf(rej.Info[0])
		case rej.Reason == mad.ReasonConsumer:
			if text, err := cm.Flagged(rej.Private[:]); err == nil && len(text) > 0 {
				why += fmt.Sprintf(" (%.80q)", text)
			}
		}
	}
	d.failed(c, l, why)
}

// transmit sends a datagram. One that cannot be sent is lost, as others are; the retries will tell.
func (d *Dialer) transmit(c *pipeline.Ctx, t *cm.Datagram) {
	mac, ok := d.cfg.Resolve(t.Remote)
	if !ok {
		return
	}
	f := &d.frame
	*f = wire.Frame{}
	headers(f, d.cfg.MAC, mac, t.Local, t.Remote)
	f.Packet = wire.Packet{
		BTH:  wire.BTH{Opcode: wire.UDSendOnly, PKey: wire.DefaultPKey, DestQP: gsiQPN, PSN: d.psn},
		DETH: wire.DETH{QKey: gsiQKey, SrcQP: gsiQPN}, Payload: t.MAD[:],
	}
	d.psn = d.psn.Next()
	note := ""
	if c.Observed() {
		var h mad.Header
		if h.Parse(t.MAD[:]) == nil {
			note = "the switch's own " + h.Attr.String()
		}
	}
	c.Emit(f, note)
}

// former is a connection that is no more here, and of which the server may not know that yet.
type former struct {
	conn  record.Conn
	link  *link // whose successor waits; nil: of a former life
	next  clock.Time
	until clock.Time // when it is given up; 0: it was not looked at yet
	tries int
}

const (
	// dreqPatience is how long a DREQ may stay without an answer.
	dreqPatience = 30 * time.Millisecond
	// packetLife is longer than any packet is on its way. Nothing is sent on a former connection, so after that time
	// nothing of it can arrive, whether its server has answered or not.
	packetLife = 2 * time.Minute
)

// endFormer asks the servers of former connections to end them, and gives up those that are too old to do harm.
func (d *Dialer) endFormer(c *pipeline.Ctx) {
	for i := 0; i < len(d.former); i++ {
		f := d.former[i]
		if f.next > c.Now {
			continue
		}
		if f.until == 0 {
			f.until = c.Now.Add(packetLife)
		}
		if c.Now >= f.until {
			d.stats.Abandoned++
			d.over(i)
			i--
			continue
		}
		d.sendDREQ(c, f)
	}
}

// over forgets a former connection.
func (d *Dialer) over(i int) {
	f := d.former[i]
	d.former = slices.Delete(d.former, i, i+1)
	d.cfg.Record.EndConn(f.conn.Slot)
	if f.link != nil {
		f.link.state = Waiting
		d.sweep(f.link)
	}
}

// sendDREQ asks the server to end a connection that the connection manager here knows nothing of any more.
func (d *Dialer) sendDREQ(c *pipeline.Ctx, f *former) {
	pause := maxBackOff
	if f.tries < 5 {
		pause = min(pause, dreqPatience<<f.tries)
	}
	if f.tries++; f.tries > 1 {
		d.stats.Retries++
	}
	f.next = c.Now.Add(pause)
	t := cm.Datagram{Local: d.own(f.conn.Server), Remote: f.conn.Server}
	if !t.Local.IsValid() {
		return
	}
	mad.Append(t.MAD[:0], uint64(f.conn.OwnID)<<32|uint64(f.conn.ServerID), &mad.DREQ{
		LocalID: mad.CommID(f.conn.OwnID), RemoteID: mad.CommID(f.conn.ServerID), QPN: f.conn.ServerQPN,
	})
	d.transmit(c, &t)
}

// agreed looks for the answer to a DREQ: the server's queue pair is in ERROR now and takes nothing more.
func (d *Dialer) agreed(peer netip.Addr, b []byte) {
	if len(d.former) == 0 {
		return
	}
	var h mad.Header
	if h.Parse(b) != nil || h.Attr != mad.AttrDREP {
		return
	}
	msg, err := mad.Parse(b, &h)
	drep, ok := msg.(*mad.DREP)
	if err != nil || !ok {
		return
	}
	i := slices.IndexFunc(d.former, func(f *former) bool {
		return f.conn.Server == peer && mad.CommID(f.conn.OwnID) == drep.RemoteID && mad.CommID(f.conn.ServerID) == drep.LocalID
	})
	if i < 0 {
		return
	}
	d.stats.Ended++
	d.over(i)
}
