package layers

import (
	"bytes"
	"errors"
	"hash/crc32"

	"github.com/google/gopacket"
	"github.com/google/gopacket/layers"
)

// ErrNoPacket means that the layers of a packet are not IP, UDP, BTH and so on up to an ICRC.
var ErrNoPacket = errors.New("no complete RoCEv2 packet")

// Sum computes the ICRC that p should have.
func Sum(p gopacket.Packet) (uint32, error) {
	udp, _ := p.Layer(layers.LayerTypeUDP).(*layers.UDP)
	bth, _ := p.Layer(LayerTypeBTH).(*BTH)
	icrc, _ := p.Layer(LayerTypeICRC).(*ICRC)
	if udp == nil || bth == nil || icrc == nil {
		return 0, ErrNoPacket
	}
	// covered gets a copy of the packet, with ones in all fields that may change on the way, behind
	// eight bytes of ones for the local route header.
	covered := bytes.Repeat([]byte{0xff}, 8)
	switch ip := p.NetworkLayer().(type) {
	case *layers.IPv4:
		h := bytes.Clone(ip.Contents)
		h[1], h[8], h[10], h[11] = 0xff, 0xff, 0xff, 0xff
		covered = append(covered, h...)
	case *layers.IPv6:
		h := bytes.Clone(ip.Contents)
		h[0], h[1], h[2], h[3], h[7] = h[0]|0x0f, 0xff, 0xff, 0xff, 0xff
		covered = append(covered, h...)
	default:
		return 0, ErrNoPacket
	}
	covered = append(covered, udp.Contents[:6]...)
	covered = append(covered, 0xff, 0xff)
	covered = append(covered, bth.Contents[:4]...)
	covered = append(covered, 0xff)
	covered = append(covered, bth.Contents[5:]...)
	covered = append(covered, bth.Payload[:len(bth.Payload)-icrcLength]...)
	return crc32.ChecksumIEEE(covered), nil
}
