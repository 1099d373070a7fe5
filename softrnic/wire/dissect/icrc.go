package dissect

import (
	"bytes"
	"errors"
	"hash/crc32"

	"github.com/google/gopacket"
)

// ErrNoPacket means that the layers of a packet are not IP, UDP, BTH and so on up to an ICRC.
var ErrNoPacket = errors.New("no complete RoCEv2 packet")

// Sum computes the ICRC that p should have.
func Sum(p gopacket.Packet) (uint32, error) {
	ip, udp := p.NetworkLayer(), p.TransportLayer()
	bth, _ := p.Layer(LayerTypeBTH).(*BTH)
	icrc, _ := p.Layer(LayerTypeICRC).(*ICRC)
	if ip == nil || udp == nil || bth == nil || icrc == nil || len(udp.LayerContents()) != udpLength {
		return 0, ErrNoPacket
	}
	// covered gets a copy of the packet, with ones in all fields that may change on the way, behind
	// eight bytes of ones for the local route header.
	covered := bytes.Repeat([]byte{0xff}, 8)
	h := bytes.Clone(ip.LayerContents())
	switch {
	case len(h) >= ipv4Length && h[0]>>4 == 4:
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff
	case len(h) == ipv6Length:
		h[0], h[1], h[2], h[3], h[7] = h[0]|0x0f, 0xff, 0xff, 0xff, 0xff
	default:
		return 0, ErrNoPacket
	}
	covered = append(covered, h...)
	covered = append(covered, udp.LayerContents()[:6]...)
	covered = append(covered, 0xff, 0xff)
	covered = append(covered, bth.Contents[:4]...)
	covered = append(covered, 0xff)
	covered = append(covered, bth.Contents[5:]...)
	covered = append(covered, bth.Payload[:len(bth.Payload)-icrcLength]...)
	return crc32.ChecksumIEEE(covered), nil
}
