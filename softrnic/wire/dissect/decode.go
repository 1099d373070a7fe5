package dissect

import (
	"fmt"

	"github.com/google/gopacket"
)

// header is an extended header: a layer of fixed length.
type header interface {
	gopacket.Layer
	DecodeFromBytes(data []byte, df gopacket.DecodeFeedback) error
}

// newHeader makes an empty extended header.
type newHeader = func() header

// headers are the extended headers that follow a BTH, as its opcode says. Decode decodes them one
// after the other, and then payload, pad and ICRC. If a program makes gopacket decode from an
// extended header on, without the BTH, the pad count is unknown, and the pad is decoded as payload.
type headers []newHeader

func (h headers) Decode(data []byte, p gopacket.PacketBuilder) error {
	return chain{headers: h}.Decode(data, p)
}

// chain decodes the part of a packet that is not decoded yet: the extended headers that follow,
// then payload, pad and ICRC.
type chain struct {
	headers headers
	pad     int // bytes
}

// Decode decodes the first header of the chain. gopacket then calls Decode for the others.
func (c chain) Decode(data []byte, p gopacket.PacketBuilder) error {
	if len(c.headers) == 0 {
		return tail{c.pad}.Decode(data, p)
	}
	h := c.headers[0]()
	if err := h.DecodeFromBytes(data, p); err != nil {
		return err
	}
	c.headers = c.headers[1:]
	return c.after(h, p)
}

// after adds layer l to the packet p, and makes c decode the bytes behind l. Every packet ends with
// an ICRC, so fewer than 4 bytes behind l are an error; gopacket itself would accept a packet that
// ends with l.
func (c chain) after(l gopacket.Layer, p gopacket.PacketBuilder) error {
	p.AddLayer(l)
	if err := take(l.LayerPayload(), icrcLength, "ICRC", p); err != nil {
		return err
	}
	return p.NextDecoder(c)
}

// take returns an error if data is shorter than a header of n bytes.
func take(data []byte, n int, name string, df gopacket.DecodeFeedback) error {
	if len(data) < n {
		df.SetTruncated()
		return fmt.Errorf("%s needs %d bytes and %d are left", name, n, len(data))
	}
	return nil
}

func newDETH() header         { return new(DETH) }
func newXRCETH() header       { return new(XRCETH) }
func newFETH() header         { return new(FETH) }
func newRETH() header         { return new(RETH) }
func newAtomicETH() header    { return new(AtomicETH) }
func newAtomicMasks() header  { return new(AtomicMasks) }
func newAETH() header         { return new(AETH) }
func newAtomicAckETH() header { return new(AtomicAckETH) }
func newImmDt() header        { return new(ImmDt) }
func newIETH() header         { return new(IETH) }
func newCNP() header          { return new(CNP) }

// Services, the top three bits of an opcode.
const (
	serviceRC  = 0
	serviceUC  = 1
	serviceUD  = 3
	serviceCNP = 4
	serviceXRC = 5
	// serviceManufacturer: opcodes of manufacturers, for reliable connections.
	serviceManufacturer = 6
)

// announced returns the extended headers of an opcode (IBTA 9.2, 9.3). An opcode that is not
// assigned has none.
func announced(opcode uint8) headers {
	service, operation := opcode>>5, opcode&0x1f
	switch service {
	case serviceRC:
		return connected(operation)
	case serviceUC:
		if operation <= 0x0b { // UC has no READ, no atomics and no acknowledgements
			return connected(operation)
		}
	case serviceXRC: // the operations of RC up to SEND only with invalidate
		switch {
		case operation > 0x17 || operation == 0x15:
		case operation >= 0x0d && operation <= 0x12: // READ responses and acknowledgements
			return connected(operation)
		default:
			return append(headers{newXRCETH}, connected(operation)...)
		}
	case serviceUD:
		switch operation {
		case 0x04:
			return headers{newDETH}
		case 0x05:
			return headers{newDETH, newImmDt}
		}
	case serviceManufacturer:
		if operation == 0x13 || operation == 0x14 { // masked compare and swap, fetch and add
			return headers{newAtomicETH, newAtomicMasks}
		}
	case serviceCNP:
		if operation == 0x01 {
			return headers{newCNP}
		}
	}
	return nil
}

// connected returns the extended headers of an operation of the services RC and UC.
func connected(operation uint8) headers {
	switch operation {
	case 0x06, 0x0a, 0x0c, 0x1d: // WRITE first and only, READ request, atomic write
		return headers{newRETH}
	case 0x1c: // flush
		return headers{newFETH, newRETH}
	case 0x0b: // WRITE only with immediate
		return headers{newRETH, newImmDt}
	case 0x03, 0x05, 0x09: // SEND last and only, WRITE last, all with immediate
		return headers{newImmDt}
	case 0x0d, 0x0f, 0x10, 0x11: // READ response first, last, only; acknowledgement
		return headers{newAETH}
	case 0x12: // atomic acknowledgement
		return headers{newAETH, newAtomicAckETH}
	case 0x13, 0x14: // compare and swap, fetch and add
		return headers{newAtomicETH}
	case 0x16, 0x17: // SEND last and only with invalidate
		return headers{newIETH}
	}
	return nil
}
