package wire

import (
	"encoding/binary"
	"errors"
)

//	 0                   1                   2                   3
//	 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1 2 3 4 5 6 7 8 9 0 1
//	+---------------------------------------------------------------+
//	|             destination MAC 01:80:c2:00:00:01                 |
//	+                               +-------------------------------+
//	|                               |                               |
//	+-------------------------------+                               +
//	|                          source MAC                           |
//	+-------------------------------+-------------------------------+
//	|            0x8808             |  opcode: 0x0101 or 0x0001     |
//	+-------------------------------+-------------------------------+
//	|    class-enable vector        |            time[0]            |
//	+-------------------------------+-------------------------------+
//	|                       time[1] to time[7]                      |
//	+---------------------------------------------------------------+
//	|                        zeros, to 60 bytes                     |
//	+---------------------------------------------------------------+
//
// A global pause frame (opcode 0x0001) has one time instead of the vector and the eight times.

// EtherTypeMACControl is the EtherType of pause frames (IEEE 802.3, 31).
const EtherTypeMACControl uint16 = 0x8808

// Priorities is the number of priorities of a link (IEEE 802.1Q, 8.6.6).
const Priorities = 8

const (
	opcodePause = 0x0001
	opcodePFC   = 0x0101
	// pauseLen is the length of a pause frame: the shortest Ethernet frame without its FCS.
	pauseLen = 60
	pauseAt  = ethernetLen + 2 // where the fields behind the opcode begin
)

// PauseMAC is the destination of pause frames (IEEE 802.3, annex 31B). No bridge forwards it.
var PauseMAC = MAC{0x01, 0x80, 0xc2, 0x00, 0x00, 0x01}

// ErrNotPause means that a frame is no pause frame: its EtherType or opcode is another one.
var ErrNotPause = errors.New("not a pause frame")

// ErrReserved means that bits which must be zero are set.
var ErrReserved = errors.New("reserved bits are set")

// ErrAddress means that a pause frame has another destination than PauseMAC, or a VLAN tag.
var ErrAddress = errors.New("wrong destination address")

// Pause is a frame by which a port makes the other end of its link stop sending, for some priorities
// (IEEE 802.1Qbb), or for all (Global, IEEE 802.3 annex 31B). Times are in quanta of 512 bit times of
// the link; 0 ends the pause.
type Pause struct {
	Src MAC
	// Global: the frame is a global pause frame. Its time is Time[0], and Enabled is 0.
	Global bool
	// Enabled has bit i set if Time[i] applies to priority i.
	Enabled uint8
	Time    [Priorities]uint16
}

// IsPause reports whether a frame has the EtherType of pause frames. The result is also true for frames
// that ParsePause refuses.
func IsPause(b []byte) bool {
	return len(b) >= ethernetLen && binary.BigEndian.Uint16(b[12:]) == EtherTypeMACControl
}

// ParsePause parses a frame without FCS. The error is ErrNotPause or a *FormatError; then p is
// undefined. The frame must have at least 60 bytes, the destination PauseMAC, no tag, and a class-enable
// vector whose high byte is 0. Bytes behind the times are ignored.
func ParsePause(b []byte, p *Pause) error {
	if !IsPause(b) {
		return ErrNotPause
	}
	if err := need(b, pauseLen, "pause frame"); err != nil {
		return err
	}
	if MAC(b) != PauseMAC {
		return &FormatError{Header: "pause frame", Reason: ErrAddress, Got: int(b[5]), Want: int(PauseMAC[5])}
	}
	*p = Pause{Src: MAC(b[6:])}
	switch binary.BigEndian.Uint16(b[ethernetLen:]) {
	case opcodePause:
		p.Global, p.Time[0] = true, binary.BigEndian.Uint16(b[pauseAt:])
	case opcodePFC:
		if b[pauseAt] != 0 {
			return &FormatError{Header: "pause frame", Reason: ErrReserved, Got: int(b[pauseAt])}
		}
		p.Enabled = b[pauseAt+1]
		for i := range p.Time {
			p.Time[i] = binary.BigEndian.Uint16(b[pauseAt+2+2*i:])
		}
	default:
		return ErrNotPause
	}
	return nil
}

// AppendTo appends the frame without FCS, padded with zeros to Len bytes.
func (p *Pause) AppendTo(b []byte) []byte {
	start := len(b)
	b = append(b, PauseMAC[:]...)
	b = append(b, p.Src[:]...)
	b = binary.BigEndian.AppendUint16(b, EtherTypeMACControl)
	if p.Global {
		b = binary.BigEndian.AppendUint16(b, opcodePause)
		b = binary.BigEndian.AppendUint16(b, p.Time[0])
	} else {
		b = binary.BigEndian.AppendUint16(b, opcodePFC)
		b = append(b, 0, p.Enabled)
		for _, t := range p.Time {
			b = binary.BigEndian.AppendUint16(b, t)
		}
	}
	var zeros [pauseLen - pauseAt - 2]byte
	return append(b, zeros[:pauseLen-(len(b)-start)]...)
}

// Len returns the length of the frame in bytes, without FCS.
func (p *Pause) Len() int { return pauseLen }
