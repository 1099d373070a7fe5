package packetio

import (
	"bytes"
	"encoding/binary"
)

// Limits of a super-frame: Linux's limits for UDP segments, and the limits of the length fields.
const (
	maxSegments = 128
	maxDatagram = 65535
)

// Run describes consecutive frames that can be merged into one super-frame.
type Run struct {
	// Frames is the number of frames, in order, at least one.
	Frames int
	// Headers is the length of each frame's headers. SegSize is the number of bytes behind the
	// headers in each frame; the last frame may have fewer.
	Headers, SegSize int
	l                layout
	bytes            int // bytes behind the headers, of all frames together
}

// FirstRun returns the longest run at the beginning of frames. A run consists of RoCEv2 packets, or
// of 1RMA messages, with equal Ethernet, IP and UDP headers, except for the fields that
// segmentation sets: IPv4 identification, lengths and IPv4 checksum. So Split makes the same
// packets of the super-frame again, byte for byte. limit is the longest frame that fits the MTU of
// the link. A longer one is not merged: in a super-frame, the link would not notice that the packet
// is too long.
func FirstRun(frames []Frame, limit int) Run {
	run := Run{Frames: 1}
	f := &frames[0]
	l, ok := locate(f.Data)
	if !ok || l.tcp || len(f.Data) > limit || !f.plain() || !l.whole(f.Data) {
		return run
	}
	run.l, run.Headers, run.SegSize = l, l.payload, len(f.Data)-l.payload
	run.bytes = run.SegSize
	for i := 1; i < len(frames) && i < maxSegments; i++ {
		n := &frames[i]
		size := len(n.Data) - l.payload
		if !n.plain() || n.Port != f.Port || size <= 0 || size > run.SegSize ||
			l.payload-l.ip+run.bytes+size > maxDatagram || !l.follows(f.Data, n.Data, i) {
			break
		}
		run.Frames, run.bytes = i+1, run.bytes+size
		if size < run.SegSize {
			break
		}
	}
	return run
}

// plain reports whether a frame is a single packet without an unfinished checksum.
func (f *Frame) plain() bool {
	return f.SegSize == 0 && !f.CsumPartial && f.Offload == Offload{}
}

// whole reports whether b is a complete packet of RoCEv2 or 1RMA as a NIC sends it. It must not be
// a fragment, have IPv4 options or a UDP checksum, or have bytes behind the datagram; its IPv4
// checksum must be correct.
func (l *layout) whole(b []byte) bool {
	ip, udp := b[l.ip:], b[l.l4:]
	if len(b) == l.payload || !mergeable(binary.BigEndian.Uint16(udp[2:])) || binary.BigEndian.Uint16(udp[6:]) != 0 ||
		int(binary.BigEndian.Uint16(udp[4:])) != len(udp) {
		return false
	}
	if l.v6 {
		return int(binary.BigEndian.Uint16(ip[4:])) == len(udp)
	}
	const fragment = 0x3fff // the flag MF and the fragment offset
	return l.l4 == l.ip+ipv4Len && int(binary.BigEndian.Uint16(ip[2:])) == len(ip) &&
		binary.BigEndian.Uint16(ip[6:])&fragment == 0 && Fold(Sum(ip[:ipv4Len])) == 0xffff
}

// follows reports whether the packet b can be segment i of a super-frame whose first segment is the
// packet `first`.
func (l *layout) follows(first, b []byte, i int) bool {
	ip, was := b[l.ip:l.l4], first[l.ip:l.l4]
	if !bytes.Equal(b[:l.ip], first[:l.ip]) || !l.whole(b) || !bytes.Equal(b[l.l4:l.l4+4], first[l.l4:l.l4+4]) {
		return false
	}
	if l.v6 {
		return bytes.Equal(ip[:4], was[:4]) && bytes.Equal(ip[6:], was[6:])
	}
	return bytes.Equal(ip[:2], was[:2]) && bytes.Equal(ip[6:10], was[6:10]) && bytes.Equal(ip[12:], was[12:]) &&
		binary.BigEndian.Uint16(ip[4:]) == binary.BigEndian.Uint16(was[4:])+uint16(i)
}

// AppendHeaders appends the headers of the super-frame of a run of at least two frames to dst; the
// payloads of the frames follow them. It returns the super-frame without Data.
func (r *Run) AppendHeaders(dst []byte, frames []Frame) ([]byte, Frame) {
	start := len(dst)
	dst = append(dst, frames[0].Data[:r.Headers]...)
	h := dst[start:]
	ip, udp := h[r.l.ip:r.l.l4], h[r.l.l4:]
	length := udpLen + r.bytes
	binary.BigEndian.PutUint16(udp[4:], uint16(length))
	addrs := ip[12:]
	if r.l.v6 {
		addrs = ip[8:]
		binary.BigEndian.PutUint16(ip[4:], uint16(length))
	} else {
		binary.BigEndian.PutUint16(ip[2:], uint16(len(ip)+length))
		binary.BigEndian.PutUint16(ip[10:], 0)
		binary.BigEndian.PutUint16(ip[10:], ^Fold(Sum(ip)))
	}
	// The kernel segments only frames whose checksum is unfinished, that is, the sum of the
	// pseudo-header.
	binary.BigEndian.PutUint16(udp[6:], Fold(Sum(addrs)+protocolUDP+uint64(length)))
	const checksumAt = 6
	return dst, Frame{
		SegSize: r.SegSize, CsumPartial: true, CsumStart: uint16(r.l.l4), CsumOffset: checksumAt, Port: frames[0].Port,
	}
}
