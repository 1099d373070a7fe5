package rdmacm

import (
	"encoding/binary"
	"fmt"
	"io"

	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A message of the out-of-band exchange, all numbers big-endian:
//
//	 0       4         5      6        8
//	+-------+---------+------+--------+------------------------+
//	| magic | version | kind | length | body of length bytes   |
//	+-------+---------+------+--------+------------------------+
//
//	request, reply:  QPN 4 | PSN 4 | GID 16 | MTU 2 | depth 2 | text 1+n (service) | private 2+n
//	reject:          text 1+n (reason) | private 2+n (only if there are some)
//	ready:           empty
type message struct {
	kind     kind
	endpoint Endpoint
	// text is the service's name in a request, the reason in a reject.
	text    string
	private []byte
}

// kind is the kind of a message.
type kind uint8

const (
	kindRequest kind = iota + 1
	kindReply
	kindReject
	kindReady
)

const (
	magic        = 0x72646d63 // "rdmc"
	version      = 1
	headerLen    = 8
	endpointLen  = 28
	maxText      = 200
	maxBody      = endpointLen + 1 + maxText + 2 + MaxPrivate
	maxPSN       = 1<<24 - 1
	firstFreeQPN = 2
	lastQPN      = 1<<24 - 2 // the largest number of a queue pair; the next number stands for multicast groups
)

// appendTo appends the encoding of m. It cuts texts and private data that are too long; callers
// have checked all but the reason of a reject.
func (m *message) appendTo(b []byte) []byte {
	start := len(b)
	b = binary.BigEndian.AppendUint32(b, magic)
	b = append(b, version, byte(m.kind), 0, 0)
	text := m.text[:min(len(m.text), maxText)]
	switch m.kind {
	case kindRequest, kindReply:
		e := &m.endpoint
		b = binary.BigEndian.AppendUint32(b, uint32(e.QPN))
		b = binary.BigEndian.AppendUint32(b, uint32(e.PSN))
		b = append(b, e.GID[:]...)
		b = binary.BigEndian.AppendUint16(b, uint16(e.MTU))
		b = binary.BigEndian.AppendUint16(b, uint16(e.RdAtomic))
		b = append(append(b, byte(len(text))), text...)
		private := m.private[:min(len(m.private), MaxPrivate)]
		b = append(binary.BigEndian.AppendUint16(b, uint16(len(private))), private...)
	case kindReject:
		b = append(append(b, byte(len(text))), text...)
		if private := m.private[:min(len(m.private), MaxPrivate)]; len(private) > 0 {
			b = append(binary.BigEndian.AppendUint16(b, uint16(len(private))), private...)
		}
	case kindReady:
	}
	binary.BigEndian.PutUint16(b[start+6:], uint16(len(b)-start-headerLen))
	return b
}

// parseHeader returns the kind of a message and the length of its body.
func parseHeader(b []byte) (kind, int, error) {
	if len(b) < headerLen || binary.BigEndian.Uint32(b) != magic {
		return 0, 0, fmt.Errorf("%w: no connection message", ErrProtocol)
	}
	if b[4] != version {
		return 0, 0, fmt.Errorf("%w: version %d, this program speaks %d", ErrProtocol, b[4], version)
	}
	n := int(binary.BigEndian.Uint16(b[6:]))
	if n > maxBody {
		return 0, 0, fmt.Errorf("%w: body of %d bytes, at most %d", ErrProtocol, n, maxBody)
	}
	return kind(b[5]), n, nil
}

// parseBody decodes the body of a message. It refuses values that BringUp could not use.
func parseBody(k kind, b []byte) (message, error) {
	m := message{kind: k}
	var ok bool
	switch k {
	case kindRequest, kindReply:
		if len(b) < endpointLen {
			return m, fmt.Errorf("%w: short endpoint", ErrProtocol)
		}
		if err := m.endpoint.parse(b); err != nil {
			return m, err
		}
		if m.text, b, ok = takeText(b[endpointLen:]); !ok {
			return m, fmt.Errorf("%w: short text", ErrProtocol)
		}
		return m, m.takePrivate(b)
	case kindReject:
		if m.text, b, ok = takeText(b); ok && len(b) > 2 {
			return m, m.takePrivate(b)
		}
	case kindReady:
		ok = true
	}
	if !ok || len(b) != 0 {
		return m, fmt.Errorf("%w: kind %d with %d stray bytes", ErrProtocol, k, len(b))
	}
	return m, nil
}

// takePrivate decodes the private data, which are the last part of a message.
func (m *message) takePrivate(b []byte) error {
	if len(b) < 2 {
		return fmt.Errorf("%w: no length of private data", ErrProtocol)
	}
	n := int(binary.BigEndian.Uint16(b))
	if b = b[2:]; n != len(b) || n > MaxPrivate {
		return fmt.Errorf("%w: %d bytes of private data announced, %d there, at most %d", ErrProtocol, n, len(b), MaxPrivate)
	}
	m.private = append([]byte(nil), b...)
	return nil
}

func (e *Endpoint) parse(b []byte) error {
	*e = Endpoint{
		QPN: wire.QPN(binary.BigEndian.Uint32(b)), PSN: wire.PSN(binary.BigEndian.Uint32(b[4:])), GID: verbs.GID(b[8:24]),
		MTU: verbs.MTU(binary.BigEndian.Uint16(b[24:])), RdAtomic: int(binary.BigEndian.Uint16(b[26:])),
	}
	switch {
	case e.QPN < firstFreeQPN || e.QPN > lastQPN:
		return fmt.Errorf("%w: QPN %#x", ErrProtocol, e.QPN)
	case e.PSN > maxPSN:
		return fmt.Errorf("%w: PSN %#x", ErrProtocol, e.PSN)
	case e.RdAtomic < 1 || e.RdAtomic > maxRdAtomic:
		return fmt.Errorf("%w: depth %d", ErrProtocol, e.RdAtomic)
	case !e.MTU.Valid():
		return fmt.Errorf("%w: path MTU %d", ErrProtocol, e.MTU)
	}
	return nil
}

func takeText(b []byte) (string, []byte, bool) {
	if len(b) < 1 || int(b[0]) > maxText || len(b) < 1+int(b[0]) {
		return "", b, false
	}
	n := 1 + int(b[0])
	return string(b[1:n]), b[n:], true
}

// readMessage reads one message. The caller has set a deadline for reading.
func readMessage(r io.Reader) (message, error) {
	var buf [headerLen + maxBody]byte
	if _, err := io.ReadFull(r, buf[:headerLen]); err != nil {
		return message{}, err
	}
	k, n, err := parseHeader(buf[:headerLen])
	if err != nil {
		return message{}, err
	}
	body := buf[headerLen : headerLen+n]
	if _, err := io.ReadFull(r, body); err != nil {
		return message{}, err
	}
	return parseBody(k, body)
}
