package trunk

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// recordLen is the length of what stands in front of each frame in a train: the length of the frame, and
// the fields of a virtio_net_hdr (virtio 1.2, 5.1.6) in network byte order:
//
//	| 0 to 3 |   4   |    5     |   6, 7   |   8, 9   | 10, 11 | 12, 13 |
//	| length | flags | gso type | hdr len  | gso size |     checksum    |
//
// The checksum's fields say where it begins, and where it is stored behind that.
const recordLen = 14

const (
	flagChecksum = 1 // VIRTIO_NET_HDR_F_NEEDS_CSUM
	gsoUDP       = 5 // VIRTIO_NET_HDR_GSO_UDP_L4
)

func putRecord(b *[recordLen]byte, f *packetio.Frame, length int) {
	*b = [recordLen]byte{}
	binary.BigEndian.PutUint32(b[:], uint32(length))
	if f.CsumPartial {
		b[4] = flagChecksum
		binary.BigEndian.PutUint16(b[10:], f.CsumStart)
		binary.BigEndian.PutUint16(b[12:], f.CsumOffset)
	}
	b[5] = f.Offload.Type
	binary.BigEndian.PutUint16(b[6:], f.Offload.HdrLen)
	binary.BigEndian.PutUint16(b[8:], f.Offload.Size)
	if f.SegSize > 0 {
		b[5] = gsoUDP
		binary.BigEndian.PutUint16(b[8:], uint16(f.SegSize))
	}
}

// parseRecord reads a record's header of recordLen bytes: the frame without its Data, and how long
// that is. ok is false if no frame has this length.
func parseRecord(b []byte) (f packetio.Frame, length int, ok bool) {
	_ = b[recordLen-1]
	n := binary.BigEndian.Uint32(b)
	if n < minFrame || n > packetio.MaxFrame {
		return f, 0, false
	}
	if b[4]&flagChecksum != 0 {
		f.CsumPartial = true
		f.CsumStart, f.CsumOffset = binary.BigEndian.Uint16(b[10:]), binary.BigEndian.Uint16(b[12:])
	}
	switch size := binary.BigEndian.Uint16(b[8:]); b[5] {
	case 0:
	case gsoUDP:
		f.SegSize = int(size)
	default:
		f.Offload = packetio.Offload{Type: b[5], HdrLen: binary.BigEndian.Uint16(b[6:]), Size: size}
	}
	return f, int(n), true
}

// minFrame is the length of the shortest frame: an Ethernet header.
const minFrame = 14
