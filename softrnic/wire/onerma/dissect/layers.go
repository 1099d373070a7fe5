// Package dissect has the clear header of the messages of the connectionless NIC as a layer of gopacket,
// behind UDP port 4792; the encrypted body with the tag is the payload of that layer. It adds the layer
// to package softrnic/wire/dissect; package softrnic/wire/onerma/layers adds it to gopacket's own layers.
//
// The package shares no code with package softrnic/wire/onerma. So a test that compares both on the same
// bytes can find mistakes. The package is made for tools and tests.
package dissect

import (
	"encoding/binary"
	"fmt"

	"github.com/google/gopacket"

	"github.com/rdmalab/rdmalab/softrnic/wire/dissect"
)

// Port is the UDP destination port.
const Port = 4792

// LayerType is the gopacket type of Message. Numbers from 2000 on are free for users of gopacket.
var LayerType = gopacket.RegisterLayerType(4850, gopacket.LayerTypeMetadata{Name: "ONERMA", Decoder: gopacket.DecodeFunc(decode)})

// init registers the layer for its UDP port; the package has no other state.
func init() { dissect.Register(Port, LayerType) }

// header and tag are the lengths of a header and a tag in bytes.
const (
	header = 44
	tag    = 16
)

// Message is the clear header of a message. Its payload is the encrypted body and Tag.
type Message struct {
	dissect.Base
	Version, Kind, Operation, Class uint8
	Slot, At                        uint16
	Generation, Region              uint32
	Offset                          uint64
	Length, PID                     uint32
	Counter                         uint64
	Ticket                          uint32
	// Tag authenticates header and body.
	Tag [tag]byte
}

func (m *Message) LayerType() gopacket.LayerType { return LayerType }

// DecodeFromBytes reads the header. It checks only that the message is long enough.
func (m *Message) DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error {
	if len(data) < header+tag {
		df.SetTruncated()
		return fmt.Errorf("an ONERMA message needs %d bytes and %d are left", header+tag, len(data))
	}
	m.Base = dissect.Base{Contents: data[:header], Payload: data[header:]}
	for _, field := range []any{
		&m.Version, &m.Kind, &m.Operation, &m.Class, &m.Slot, &m.At, &m.Generation, &m.Region, &m.Offset, &m.Length, &m.PID, &m.Counter, &m.Ticket,
	} {
		n, err := binary.Decode(data, binary.BigEndian, field)
		if err != nil {
			return err
		}
		data = data[n:]
	}
	copy(m.Tag[:], data[len(data)-tag:])
	return nil
}

func decode(data []byte, p gopacket.PacketBuilder) error {
	m := new(Message)
	if err := m.DecodeFromBytes(data, p); err != nil {
		return err
	}
	p.AddLayer(m)
	return p.NextDecoder(gopacket.LayerTypePayload)
}
