package afpacket

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// vnetLen is the size of the virtio_net_hdr that PACKET_VNET_HDR puts before each frame, in both
// directions:
//
//	0 flags | 1 gso_type | 2 hdr_len | 4 gso_size | 6 csum_start | 8 csum_offset     (host byte order)
const vnetLen = 10

// Values of virtio_net_hdr (virtio 1.2, 5.1.6).
const (
	vnetNeedsCsum = 1
	gsoNone       = 0
	gsoUDPL4      = 5
	gsoECN        = 0x80
	udpHeaderLen  = 8
	tcpHeaderMin  = 20
)

// decodeVnet copies the offload header h to the fields of f.
func decodeVnet(h []byte, f *packetio.Frame) {
	_ = h[vnetLen-1]
	if h[0]&vnetNeedsCsum != 0 {
		f.CsumPartial = true
		f.CsumStart = binary.NativeEndian.Uint16(h[6:])
		f.CsumOffset = binary.NativeEndian.Uint16(h[8:])
	}
	switch h[1] &^ gsoECN {
	case gsoNone:
	case gsoUDPL4:
		f.SegSize = int(binary.NativeEndian.Uint16(h[4:]))
	default:
		f.Offload = packetio.Offload{
			Type:   h[1],
			HdrLen: binary.NativeEndian.Uint16(h[2:]),
			Size:   binary.NativeEndian.Uint16(h[4:]),
		}
	}
}

// encodeVnet writes the offload header of f to h.
func encodeVnet(h *[vnetLen]byte, f *packetio.Frame) {
	*h = [vnetLen]byte{}
	if !f.CsumPartial {
		return // the kernel segments only frames whose checksum is unfinished
	}
	h[0] = vnetNeedsCsum
	binary.NativeEndian.PutUint16(h[6:], f.CsumStart)
	binary.NativeEndian.PutUint16(h[8:], f.CsumOffset)
	switch {
	case f.SegSize > 0:
		h[1] = gsoUDPL4
		binary.NativeEndian.PutUint16(h[2:], f.CsumStart+udpHeaderLen)
		binary.NativeEndian.PutUint16(h[4:], uint16(f.SegSize))
	case f.Offload.Type != gsoNone:
		h[1] = f.Offload.Type
		// The header length that a sender gives is the length of its buffer, perhaps of the whole frame.
		// With such a length large sends fail when the kernel has no contiguous memory of this size.
		hdrLen := min(f.Offload.HdrLen, f.CsumStart+maxTCPHeader)
		binary.NativeEndian.PutUint16(h[2:], hdrLen)
		binary.NativeEndian.PutUint16(h[4:], f.Offload.Size)
	}
}

// maxTCPHeader is the longest TCP header in bytes.
const maxTCPHeader = 60

// packets returns the number of packets in f. For TCP with options it may be one too large, because
// the options count as payload.
func packets(f *packetio.Frame) uint64 {
	size, headers := f.SegSize, int(f.CsumStart)+udpHeaderLen
	if f.Offload.Type != gsoNone {
		size, headers = int(f.Offload.Size), int(f.CsumStart)+tcpHeaderMin
	}
	payload := len(f.Data) - headers
	if size <= 0 || payload <= size {
		return 1
	}
	return uint64((payload + size - 1) / size)
}

// Lengths of parts of an Ethernet header in bytes, and the TPID.
const (
	macsLen     = 12
	ethernetLen = 14
	tagLen      = 4
	tpid8021Q   = 0x8100
)

// insertTag puts a VLAN tag that the kernel has removed back into the frame at mem[off:off+n]. The
// frame then begins four bytes before off.
func insertTag(mem []byte, off, n int, tpid, tci uint16, f *packetio.Frame) {
	start := off - tagLen
	copy(mem[start:start+macsLen], mem[off:off+macsLen])
	binary.BigEndian.PutUint16(mem[start+macsLen:], tpid)
	binary.BigEndian.PutUint16(mem[start+macsLen+2:], tci)
	f.Data = mem[start : off+n : off+n]
	if f.CsumPartial {
		f.CsumStart += tagLen
	}
}
