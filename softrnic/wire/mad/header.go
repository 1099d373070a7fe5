package mad

import (
	"encoding/binary"
	"fmt"
)

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------+---------------+---------------+-+-------------+
//	|  base version |     class     | class version |R|    method   |
//	+---------------+---------------+---------------+-+-------------+
//	|            status             |        class specific         |
//	+-------------------------------+-------------------------------+
//	|                        transaction ID                         |
//	|                                                               |
//	+-------------------------------+-------------------------------+
//	|         attribute ID          |           reserved            |
//	+-------------------------------+-------------------------------+
//	|                      attribute modifier                       |
//	+---------------------------------------------------------------+

// Lengths in bytes (IBTA 13.4.2).
const (
	HeaderLen = 24
	// Size is the length of every datagram.
	Size = 256
	// bodyLen is the length of a communication manager's message after the header.
	bodyLen = Size - HeaderLen
)

// Values of the common header for the communication manager (IBTA 13.4.4, 16.7).
const (
	baseVersion    = 1
	classCM        = 0x07
	classCMVersion = 2
	methodSend     = 0x03
)

// Attr is an attribute ID: the kind of message (IBTA 16.7.2).
type Attr uint16

// Messages of the communication manager.
const (
	AttrREQ     Attr = 0x0010
	AttrMRA     Attr = 0x0011
	AttrREJ     Attr = 0x0012
	AttrREP     Attr = 0x0013
	AttrRTU     Attr = 0x0014
	AttrDREQ    Attr = 0x0015
	AttrDREP    Attr = 0x0016
	AttrSIDRReq Attr = 0x0017
	AttrSIDRRep Attr = 0x0018
)

var attrNames = map[Attr]string{
	AttrREQ: "REQ", AttrMRA: "MRA", AttrREJ: "REJ", AttrREP: "REP", AttrRTU: "RTU", AttrDREQ: "DREQ", AttrDREP: "DREP",
	AttrSIDRReq: "SIDR_REQ", AttrSIDRRep: "SIDR_REP",
}

func (a Attr) String() string {
	if s, ok := attrNames[a]; ok {
		return s
	}
	return fmt.Sprintf("attribute %#04x", uint16(a))
}

// Header is the common MAD header.
type Header struct {
	BaseVersion, Class, ClassVersion, Method uint8
	Status, ClassSpecific                    uint16
	TID                                      uint64
	Attr                                     Attr
	Modifier                                 uint32
}

// IsCM reports whether the datagram is a message of the communication manager, of the versions that
// this package knows.
func (h *Header) IsCM() bool {
	return h.BaseVersion == baseVersion && h.Class == classCM && h.ClassVersion == classCMVersion && h.Method == methodSend
}

func (h *Header) Parse(b []byte) error {
	if err := need(b, HeaderLen, "MAD"); err != nil {
		return err
	}
	*h = Header{
		BaseVersion: b[0], Class: b[1], ClassVersion: b[2], Method: b[3],
		Status: binary.BigEndian.Uint16(b[4:]), ClassSpecific: binary.BigEndian.Uint16(b[6:]),
		TID: binary.BigEndian.Uint64(b[8:]), Attr: Attr(binary.BigEndian.Uint16(b[16:])), Modifier: binary.BigEndian.Uint32(b[20:]),
	}
	return nil
}

func (h *Header) AppendTo(b []byte) []byte {
	b = append(b, h.BaseVersion, h.Class, h.ClassVersion, h.Method)
	b = binary.BigEndian.AppendUint16(b, h.Status)
	b = binary.BigEndian.AppendUint16(b, h.ClassSpecific)
	b = binary.BigEndian.AppendUint64(b, h.TID)
	b = binary.BigEndian.AppendUint16(b, uint16(h.Attr))
	b = append(b, 0, 0)
	return binary.BigEndian.AppendUint32(b, h.Modifier)
}
