package layers

import (
	"bytes"
	"encoding/binary"
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
	// A copy of the packet with ones in place of all fields that may change on the way, behind
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

// Serialize writes all layers of a packet into b, as gopacket.SerializeLayers does. With FixLengths
// it also sets the pad of Payload and BTH, and with ComputeChecksums the ICRC. The first layer is a
// link or network layer. Leave the UDP checksum at 0: Serialize computes only the IPv4 checksum.
func Serialize(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions, all ...gopacket.SerializableLayer) error {
	var bth *BTH
	var payload *Payload
	for _, l := range all {
		switch l := l.(type) {
		case *BTH:
			bth = l
		case *Payload:
			payload = l
		}
	}
	if bth == nil {
		return ErrNoPacket
	}
	if opts.FixLengths {
		bth.PadCount = 0
		if payload != nil {
			payload.Pad = make([]byte, (4-len(payload.Data)%4)%4)
			bth.PadCount = uint8(len(payload.Pad))
		}
	}
	wrapped := make([]gopacket.SerializableLayer, len(all))
	for i, l := range all {
		wrapped[i] = l
		if udp, ok := l.(*layers.UDP); ok {
			wrapped[i] = plainUDP{udp}
		}
	}
	if err := gopacket.SerializeLayers(b, opts, wrapped...); err != nil {
		return err
	}
	if !opts.ComputeChecksums {
		return nil
	}
	return putICRC(gopacket.NewPacket(b.Bytes(), all[0].LayerType(), gopacket.NoCopy))
}

// plainUDP is UDP whose checksum is not computed.
type plainUDP struct{ *layers.UDP }

// SerializeTo writes the header.
func (u plainUDP) SerializeTo(b gopacket.SerializeBuffer, opts gopacket.SerializeOptions) error {
	opts.ComputeChecksums = false
	return u.UDP.SerializeTo(b, opts)
}

// putICRC writes the ICRC into the bytes that p was decoded from.
func putICRC(p gopacket.Packet) error {
	sum, err := Sum(p)
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint32(p.Layer(LayerTypeICRC).LayerContents(), sum)
	return nil
}
