package nldev

import (
	"bytes"
	"encoding/binary"
)

// An attribute has a length of 16 bits, which counts this header, a type of 16 bits, and its value. The
// next one begins at a multiple of 4 bytes. Numbers are in the byte order of the machine.
const (
	attrHeader   = 4
	attrTypeMask = 1<<14 - 1 // without the flags for nested attributes and for another byte order
)

func align(n int) int { return (n + 3) &^ 3 }

// attributes are the attributes of a request by their types. Of several with one type it has the last.
type attributes map[int][]byte

// parseAttributes decodes the attributes of a request. ok is false if a length is wrong.
func parseAttributes(b []byte) (a attributes, ok bool) {
	a = make(attributes)
	for len(b) >= attrHeader {
		n := int(binary.NativeEndian.Uint16(b))
		if n < attrHeader || n > len(b) {
			return nil, false
		}
		a[int(binary.NativeEndian.Uint16(b[2:]))&attrTypeMask] = b[attrHeader:n]
		b = b[min(align(n), len(b)):]
	}
	return a, true // the kernel, too, ignores bytes behind the last attribute
}

// u32 returns a number; false if it is not there, or is too short.
func (a attributes) u32(kind int) (uint32, bool) {
	v := a[kind]
	if len(v) < 4 {
		return 0, false
	}
	return binary.NativeEndian.Uint32(v), true
}

// text returns a string without the zero at its end.
func (a attributes) text(kind int) string {
	v, _, _ := bytes.Cut(a[kind], []byte{0})
	return string(v)
}

// message is an answer under construction.
type message struct{ b []byte }

func (m *message) put(kind int, value []byte) {
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(attrHeader+len(value)))
	m.b = binary.NativeEndian.AppendUint16(m.b, uint16(kind))
	m.b = append(m.b, value...)
	m.b = append(m.b, make([]byte, align(len(value))-len(value))...)
}

func (m *message) u8(kind int, v uint8)    { m.put(kind, []byte{v}) }
func (m *message) u32(kind int, v uint32)  { m.put(kind, binary.NativeEndian.AppendUint32(nil, v)) }
func (m *message) u64(kind int, v uint64)  { m.put(kind, binary.NativeEndian.AppendUint64(nil, v)) }
func (m *message) text(kind int, v string) { m.put(kind, append([]byte(v), 0)) }
func (m *message) nest(kind int, f func()) {
	at := len(m.b)
	m.put(kind, nil)
	f()
	binary.NativeEndian.PutUint16(m.b[at:], uint16(len(m.b)-at))
}
