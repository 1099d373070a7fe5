package lookuptable

import (
	"bytes"
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// quote says where, in an ICMP error, the headers of the quoted packet are.
type quote struct {
	view
	// ports is true if the frame has the ports of the quoted packet. Bytes behind the ports may be
	// missing.
	ports bool
}

// quotedLen is how many bytes of a quoted transport header an action can change: up to the end of
// TCP's checksum.
const quotedLen = 18

// isError reports whether the frame is an ICMP error. Behind its header of 8 bytes, an error quotes
// the packet that it is about (RFC 792, RFC 4443 section 2.4).
func (v *view) isError(b []byte) bool {
	if !v.inner || len(b) < v.l4+icmpLen {
		return false
	}
	switch kind := b[v.l4]; {
	case v.proto == protoICMPv6 && v.v6:
		return kind >= 1 && kind <= 4
	case v.proto == protoICMP && !v.v6:
		return kind >= 3 && kind <= 5 || kind == 11 || kind == 12
	}
	return false
}

// parseQuote reads the headers of the packet that an ICMP error is about. ok is false if the frame
// is no such error, or quotes no complete IP header.
func (v *view) parseQuote(b []byte, q *quote) (ok bool) {
	if !v.isError(b) {
		return false
	}
	if q.ip = v.l4 + icmpLen; !q.parseIP(b, v.v6) {
		return false
	}
	n := len(b) - q.l4
	q.ports = q.inner && (q.proto == protoTCP || q.proto == protoUDP) && n >= 4
	return true
}

// keyOfQuote returns the key of the flow in the opposite direction of the quoted packet: from the
// destination of the quoted packet to its source. The entry with this key also rewrites the ICMP
// error message that quotes the packet.
func (q *quote) keyOfQuote(b []byte) (k Key) {
	src, dst := q.addrs(b)
	copy(k.Src[:], dst)
	copy(k.Dst[:], src)
	if k.V6, k.Proto = q.v6, q.proto; q.ports {
		k.SrcPort, k.DstPort = binary.BigEndian.Uint16(b[q.l4+2:]), binary.BigEndian.Uint16(b[q.l4:])
	}
	return k
}

// sumAt returns the offset of the quoted transport checksum; 0 means that it is not there, or does
// not cover addresses and ports.
func (q *quote) sumAt(b []byte) int {
	at := 0
	switch {
	case !q.inner:
	case q.proto == protoTCP:
		at = q.l4 + 16
	case q.proto == protoUDP:
		at = q.l4 + 6
	case q.v6 && q.proto == protoICMPv6:
		at = q.l4 + 2
	}
	if at+2 > len(b) {
		return 0
	}
	return at
}

// rewriteQuote applies a rewriting action to the packet that an ICMP error quotes. The quoted
// packet went in the opposite direction, so an action that rewrites the source rewrites the
// destination of the quoted packet (RFC 5508, section 4.2). rewriteQuote also changes the quoted
// checksums and the checksum of the error. The result reports whether the caller must rewrite the
// address of the error itself, too. If the key is a flow, and the error has another address than
// the quoted packet, for example that of a router, only the quoted packet changes. If the key is a
// destination, and the addresses differ, only the address of the error changes.
func (a *Action) rewriteQuote(f *packetio.Frame, v *view, q *quote, flow bool) (whole bool) {
	b := f.Data
	to := min(len(b), q.l4+quotedLen)
	to -= (to - q.ip) & 1
	var was [ip4Max + quotedLen]byte
	old := was[:copy(was[:], b[q.ip:to])]

	outer, _ := v.addrs(b)
	qsrc, end := q.addrs(b)
	port := 2
	if a.Ops&OpDestination != 0 {
		_, outer = v.addrs(b)
		end, port = qsrc, 0
	}
	if whole = bytes.Equal(outer, end); !whole && !flow {
		return true
	}
	delta := packetio.SumGrows(end, a.Addr[:len(end)])
	copy(end, a.Addr[:])
	if !q.v6 {
		packetio.FixSum(b[q.ip+10:], delta)
	}
	if a.Port != 0 && q.ports {
		p, now := b[q.l4+port:][:2], [2]byte{byte(a.Port >> 8), byte(a.Port)}
		delta += packetio.SumGrows(p, now[:])
		copy(p, now[:])
	}
	if at := q.sumAt(b); at != 0 {
		fixSum(b[at:], q.proto, delta)
	}
	if !f.CsumPartial { // an unfinished checksum does not include the bytes of the ICMP message yet
		packetio.FixSum(b[v.l4+2:], packetio.SumGrows(old, b[q.ip:to]))
	}
	return whole
}
