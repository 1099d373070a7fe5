package switchconn

import (
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/cm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

const (
	// gsiQPN is the general services queue pair, to which all management datagrams go (IBTA 3.9.4).
	// gsiQKey is its Q_Key (IBTA 10.2.5).
	gsiQPN  = wire.QPN(1)
	gsiQKey = 0x80010000
	// firstPort is the lowest UDP source port of the switch.
	firstPort = 0xc000
	ttl       = 64
)

// path fills in the headers of packets to the server. If To already has a destination MAC address,
// path keeps it.
func (d *Dialer) path(s *Shared) error {
	own := d.own(s.Server)
	if !own.IsValid() {
		return fmt.Errorf("the switch has no IP address of the family of %v", s.Server)
	}
	mac := s.To.Eth.Dst
	if mac == (wire.MAC{}) {
		var ok bool
		if mac, ok = d.cfg.Resolve(s.Server); !ok {
			return fmt.Errorf("the MAC address of %v is not known", s.Server)
		}
	}
	s.To = wire.Frame{}
	headers(&s.To, d.cfg.MAC, mac, own, s.Server)
	// All packets of a connection have the same source port, so that they keep their order.
	s.To.UDP.SrcPort = firstPort | uint16(s.OwnQPN)
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

// Packet handles a packet to the switch if it is a datagram for the connection manager, and reports
// whether it was one. The caller has checked the ICRC.
func (d *Dialer) Packet(c *pipeline.Ctx, f *wire.Frame) bool {
	if !verbs.SamePartition(f.BTH.PKey, wire.DefaultPKey) || // the switch is in no other partition
		f.BTH.DestQP != gsiQPN || f.BTH.Opcode != wire.UDSendOnly || f.DETH.SrcQP != gsiQPN || f.DETH.QKey != gsiQKey {
		return false
	}
	local, peer := f.DstAddr().Unmap(), f.SrcAddr().Unmap()
	if local != d.cfg.IPv4 && local != d.cfg.IPv6 {
		return false
	}
	d.confirmed(peer, f.Payload)
	d.m.Handle(c.Now, cm.Way{Local: local, Peer: peer, PKey: wire.DefaultPKey}, f.Payload, &d.acts)
	d.carryOut(c)
	return true
}

func (d *Dialer) carryOut(c *pipeline.Ctx) {
	// Handling an event may append more events and datagrams.
	for i := 0; i < len(d.acts.Events); i++ {
		d.event(c, d.acts.Events[i])
	}
	for i := range d.acts.Tx {
		d.transmit(c, &d.acts.Tx[i])
	}
	d.acts.Reset()
}

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
	case cm.EventDisconnected, cm.EventUnanswered:
		if l.state == Up {
			d.lost(c, l, "the server has ended it")
		}
	case cm.EventRequest, cm.EventEstablished, cm.EventClosed, cm.EventResolve, cm.EventResolved:
	}
}

func (d *Dialer) rejected(c *pipeline.Ctx, l *link, rej *mad.REJ) {
	why := "the server refuses"
	if rej != nil {
		why += ": " + rej.Reason.String()
		switch {
		case rej.Reason == mad.ReasonInvalidService:
			why += fmt.Sprintf(" (no service %q there)", l.target.Service)
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

// transmit sends a datagram. If the switch does not know the MAC address of the destination, the
// datagram is lost, and the connection manager retransmits it later.
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
