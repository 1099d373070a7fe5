package packetio

import "encoding/binary"

// Lengths of headers and other numbers for splitting super-frames.
const (
	ethernetLen = 14
	vlanTagLen  = 4
	ipv4Len     = 20
	ipv6Len     = 40
	udpLen      = 8
	tcpMinLen   = 20

	etherTypeIPv4 = 0x0800
	etherTypeVLAN = 0x8100
	etherTypeIPv6 = 0x86dd
	protocolTCP   = 6
	protocolUDP   = 17
	rocePort      = 4791
	oneRMAPort    = 4792
)

// mergeable reports whether the packets of a UDP port travel as super-frames: those of RoCEv2 and
// of 1RMA. Both kinds protect their bytes themselves, and have no UDP checksum.
func mergeable(port uint16) bool { return port == rocePort || port == oneRMAPort }

// layout has the offsets of the headers of a TCP or UDP datagram.
type layout struct {
	ip, l4, payload int // offsets from the frame's start
	v6, tcp         bool
}

// locate returns the offsets of the headers of b. ok is false if b does not have complete headers
// of TCP or UDP directly behind those of IP.
func locate(b []byte) (l layout, ok bool) {
	l.ip = ethernetLen
	if len(b) < ethernetLen+vlanTagLen {
		return l, false
	}
	etherType := binary.BigEndian.Uint16(b[12:])
	if etherType == etherTypeVLAN {
		l.ip += vlanTagLen
		etherType = binary.BigEndian.Uint16(b[16:])
	}
	var protocol byte
	switch ip := b[l.ip:]; {
	case etherType == etherTypeIPv4 && len(ip) >= ipv4Len && ip[0]>>4 == 4:
		protocol, l.l4 = ip[9], l.ip+int(ip[0]&0xf)*4
	case etherType == etherTypeIPv6 && len(ip) >= ipv6Len:
		protocol, l.l4, l.v6 = ip[6], l.ip+ipv6Len, true
	default:
		return l, false
	}
	switch {
	case protocol == protocolUDP && len(b) >= l.l4+udpLen:
		l.payload = l.l4 + udpLen
	case protocol == protocolTCP && len(b) >= l.l4+tcpMinLen:
		l.payload, l.tcp = l.l4+int(b[l.l4+12]>>4)*4, true
	default:
		return l, false
	}
	return l, l.payload <= len(b) && l.l4 >= l.ip+ipv4Len
}

// Packets returns the number of packets in f: 1 unless it is a super-frame. A super-frame that is
// not Splittable because it has too many packets is one packet to the receiving NIC, too.
func (f *Frame) Packets() int {
	if f.SegSize <= 0 {
		return 1
	}
	l, ok := locate(f.Data)
	n := len(f.Data) - l.payload
	if !ok || !l.tcp && n > maxSegments*f.SegSize && mergeable(binary.BigEndian.Uint16(f.Data[l.l4+2:])) {
		return 1
	}
	return max(1, (n+f.SegSize-1)/f.SegSize)
}

// Splittable reports whether f is a super-frame of RoCEv2 packets or of 1RMA messages, which Split
// splits. It is false for a super-frame with more packets than any sender makes, because many tiny
// packets would occupy the receiver for long.
func (f *Frame) Splittable() bool {
	if f.SegSize <= 0 {
		return false
	}
	l, ok := locate(f.Data)
	n := len(f.Data) - l.payload
	return ok && !l.tcp && n > f.SegSize && n <= maxSegments*f.SegSize && mergeable(binary.BigEndian.Uint16(f.Data[l.l4+2:]))
}

// Headers returns the length of the headers of a Splittable super-frame; 0 if f is none. It reads no byte
// behind the headers.
func (f *Frame) Headers() int {
	if !f.Splittable() {
		return 0
	}
	l, _ := locate(f.Data)
	return l.payload
}

// Split appends the packets of a Splittable super-frame to b, each as a frame of its own in memory
// of b. Any other frame is appended unchanged and not copied.
func (b *Batch) Split(f Frame) {
	if !f.Splittable() {
		b.Frames = append(b.Frames, f)
		return
	}
	l, _ := locate(f.Data)
	for i := range f.Packets() {
		b.Frames = append(b.Frames, Frame{Data: f.segment(l, i, b.Alloc(l.payload+f.SegSize)), Port: f.Port, Origin: f.Origin})
	}
}

// AppendSegment appends packet i of a super-frame that is Splittable to dst. The IP identification
// is incremented for each segment, as the kernel and NICs do, so that each packet's ICRC is right.
// If there is no such packet, dst is returned unchanged.
func (f *Frame) AppendSegment(dst []byte, i int) []byte {
	if i < 0 || i >= f.Packets() || !f.Splittable() {
		return dst
	}
	l, _ := locate(f.Data)
	return f.segment(l, i, dst)
}

// segment appends packet i of the super-frame to d. The caller has checked that there is such a
// packet.
func (f *Frame) segment(l layout, i int, d []byte) []byte {
	start, at := len(d), l.payload+i*f.SegSize
	d = append(append(d, f.Data[:l.payload]...), f.Data[at:min(at+f.SegSize, len(f.Data))]...)
	l.fix(d[start:], i)
	return d
}

// Segments makes the packets of a super-frame in the memory of the frame, which it overwrites. The
// zero value is ready to use.
type Segments struct {
	frame Frame
	l     layout
	heads [MaxHeaders]byte // a copy of the headers of the super-frame
}

// MaxHeaders is the largest length of a super-frame's headers: Ethernet with a tag, IPv4 with
// options, UDP.
const MaxHeaders = ethernetLen + vlanTagLen + 60 + udpLen

// Open begins to split f and returns the number of its packets; 0 if f is not Splittable.
func (s *Segments) Open(f Frame) (n int) {
	if !f.Splittable() {
		return 0
	}
	s.frame = f
	s.l, _ = locate(f.Data)
	copy(s.heads[:], f.Data[:s.l.payload])
	return (len(f.Data) - s.l.payload + f.SegSize - 1) / f.SegSize
}

// Packet returns packet i, with the same bytes as AppendSegment. It is valid until the next call.
// Each packet can be made only once, in order, because its headers overwrite the bytes in front of
// its payload.
func (s *Segments) Packet(i int) []byte {
	start := i * s.frame.SegSize
	end := min(start+s.l.payload+s.frame.SegSize, len(s.frame.Data))
	d := s.frame.Data[start:end:end]
	copy(d, s.heads[:s.l.payload])
	s.l.fix(d, i)
	return d
}

// Append appends packet i to dst, as AppendSegment does. It does not change the frame; Packet must
// not have been called since Open.
func (s *Segments) Append(dst []byte, i int) []byte { return s.frame.segment(s.l, i, dst) }

// fix sets the lengths, identification and checksums of segment i. The UDP checksum becomes 0,
// which means none: the ICRC of RoCEv2 or the tag of 1RMA protects the packet.
func (l *layout) fix(d []byte, i int) {
	udp := d[l.l4:]
	binary.BigEndian.PutUint16(udp[4:], uint16(len(udp)))
	binary.BigEndian.PutUint16(udp[6:], 0)
	ip := d[l.ip:l.l4]
	if l.v6 {
		binary.BigEndian.PutUint16(ip[4:], uint16(len(udp)))
		return
	}
	binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+len(udp)))
	binary.BigEndian.PutUint16(ip[4:], binary.BigEndian.Uint16(ip[4:])+uint16(i))
	binary.BigEndian.PutUint16(ip[10:], 0)
	binary.BigEndian.PutUint16(ip[10:], ^Fold(Sum(ip)))
}

// FinishChecksum computes the unfinished TCP or UDP checksum, in place, and clears CsumPartial. It
// must not be used on a super-frame. If the checksum would be outside the frame, it only clears the
// flag.
func (f *Frame) FinishChecksum() {
	start, at := int(f.CsumStart), int(f.CsumStart)+int(f.CsumOffset)
	if !f.CsumPartial || at+2 > len(f.Data) {
		f.CsumPartial = false
		return
	}
	c := ^Fold(Sum(f.Data[start:])) // the field holds the sum of the pseudo-header
	if c == 0 {
		c = 0xffff // in UDP, 0 means that there is no checksum; as ones' complement sums both are equal
	}
	binary.BigEndian.PutUint16(f.Data[at:], c)
	f.CsumPartial = false
}
