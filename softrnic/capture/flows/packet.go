package flows

import (
	"hash/crc32"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/softrnic/wire/mad"
)

// Packet is one RoCEv2 packet of a capture, without its payload.
type Packet struct {
	Number   int   // in the Book, from 1; malformed packets count, other frames do not
	Time     int64 // nanoseconds since 1970, as in the capture
	Link     string
	Src, Dst netip.Addr
	// Header has BTH and extended headers; its Payload is nil.
	Header wire.Packet
	// Length is that of the payload in bytes, and Sum a checksum of the payload.
	Length   int
	Sum      uint32
	Verdict  dump.Verdict
	Err      error // of a malformed packet
	Comments []string
	// Message is that of the connection manager, of a datagram to queue pair 1; nil for another packet,
	// and for one that cannot be parsed: then MessageErr says why.
	Message    mad.Message
	MessageErr error
	// Flow is that of the packet; nil for datagrams, and for answers to requests that the capture lacks.
	Flow *Flow
	// Stray is true for a request with a PSN far from those before and behind it.
	Stray bool
}

// gsi is the number of the queue pair for management datagrams.
const gsi = wire.QPN(1)

func newPacket(n int, r *dump.Record) Packet {
	f := &r.Frame
	p := Packet{
		Number: n, Time: r.Time, Link: r.Name, Src: f.SrcAddr(), Dst: f.DstAddr(), Header: f.Packet,
		Length: len(f.Payload), Sum: crc32.ChecksumIEEE(f.Payload), Verdict: r.Verdict, Err: r.Err,
		Comments: slices.Clone(r.Comments),
	}
	if p.Verdict == dump.OK && f.BTH.DestQP == gsi && f.BTH.Opcode.Has(wire.HasDETH) {
		var h mad.Header
		p.Message, p.MessageErr = mad.Parse(f.Payload, &h)
	}
	p.Header.Payload = nil
	return p
}

// Opcode returns that of the packet.
func (p *Packet) Opcode() wire.Opcode { return p.Header.BTH.Opcode }

// PSN returns that of the packet.
func (p *Packet) PSN() wire.PSN { return p.Header.BTH.PSN }

// IsAnswer reports whether the packet has a PSN of the other end: it is a READ response or an acknowledgement.
func (p *Packet) IsAnswer() bool { return p.Opcode().Is(wire.OpResponse) }

// Answers returns how many PSNs the request takes: one, or for a READ that of its responses. If the path
// MTU is not known, it is taken to be the largest.
func (p *Packet) Answers() int {
	if p.Opcode().Plain() != wire.RCReadRequest || p.Flow == nil {
		return 1
	}
	mtu := p.Flow.MTU
	if mtu == 0 {
		mtu = maxMTU
	}
	return max(1, (int(p.Header.RETH.Length)+mtu-1)/mtu)
}

// maxMTU is the largest path MTU in bytes.
const maxMTU = 4096

// Ordered reports whether the packet is one of a connection, reliable or not, and can be read.
func (p *Packet) Ordered() bool {
	op := p.Opcode()
	return p.Verdict != dump.Malformed && op.Known() && (op.Reliable() || op.Service() == wire.ServiceUC)
}

// Lost reports whether a comment of the switch, or of the simulator's links, says that it has dropped the
// packet, or a fault.
func (p *Packet) Lost() bool { return slices.ContainsFunc(p.Comments, dropped) }

func dropped(comment string) bool {
	return strings.HasPrefix(comment, "lost-") || strings.HasPrefix(comment, "no-link") ||
		strings.HasSuffix(comment, ": dropped") || strings.Contains(comment, ": dropped;") ||
		strings.Contains(comment, "dropped by the switch") || strings.Contains(comment, "dropped: ")
}

// Tap returns the link without its direction: packets of one tap pass one place.
func (p *Packet) Tap() string {
	host, _ := Side(p.Link)
	return host
}

// Direction is that of a link of a rack.
type Direction uint8

// Directions. Unknown is that of an interface whose name does not say it.
const (
	Unknown Direction = iota
	Up                // to the switch
	Down              // from the switch
)

// Side splits the name of a capture's interface: the project names one after the host and the direction,
// "cn0 up". An interface with another name has no direction.
func Side(link string) (host string, d Direction) {
	for _, sep := range []string{" ", "-"} {
		if host, ok := strings.CutSuffix(link, sep+"up"); ok && host != "" {
			return host, Up
		}
		if host, ok := strings.CutSuffix(link, sep+"down"); ok && host != "" {
			return host, Down
		}
	}
	return link, Unknown
}
