package nldev

import (
	"encoding/binary"
	"errors"
)

// MaxDatagram is the largest length of a datagram in bytes, of requests and of answers. iproute2 reads
// no longer ones.
const MaxDatagram = 4096

// header is the header of a message (struct nlmsghdr): its length, which counts the header, and what
// follows here.
type header struct {
	kind, flags uint16
	seq, port   uint32
}

const headerLen = 16

// request is a message of a program.
type request struct {
	header
	args []byte // behind the header
}

// parseRequest decodes the first message of b, and returns what is behind it. ok is false if b does not
// begin with a message.
func parseRequest(b []byte) (r request, rest []byte, ok bool) {
	if len(b) < headerLen {
		return r, nil, false
	}
	n := int(binary.NativeEndian.Uint32(b))
	if n < headerLen || n > len(b) {
		return r, nil, false
	}
	r.header = header{
		kind: binary.NativeEndian.Uint16(b[4:]), flags: binary.NativeEndian.Uint16(b[6:]),
		seq: binary.NativeEndian.Uint32(b[8:]), port: binary.NativeEndian.Uint32(b[12:]),
	}
	r.args = b[headerLen:n]
	return r, b[min(align(n), len(b)):], true
}

// begin starts a message.
func begin(h header) *message {
	b := make([]byte, headerLen, 512)
	binary.NativeEndian.PutUint16(b[4:], h.kind)
	binary.NativeEndian.PutUint16(b[6:], h.flags)
	binary.NativeEndian.PutUint32(b[8:], h.seq)
	binary.NativeEndian.PutUint32(b[12:], h.port)
	return &message{b}
}

// end completes a message.
func (m *message) end() []byte {
	binary.NativeEndian.PutUint32(m.b, uint32(len(m.b)))
	return m.b
}

// failure is the message that ends a request without an answer, or acknowledges it, if err is nil: the
// error (struct nlmsgerr) and the header of the request.
func failure(r *request, err error) []byte {
	m := begin(header{kind: typeError, seq: r.seq, port: r.port})
	var no errno
	if err != nil && !errors.As(err, &no) {
		no = ioError
	}
	m.b = binary.NativeEndian.AppendUint32(m.b, uint32(-int32(no)))
	h := begin(r.header)
	binary.NativeEndian.PutUint32(h.b, uint32(headerLen+len(r.args)))
	m.b = append(m.b, h.b...)
	if err != nil { // an error has the whole request, an acknowledgement its header alone
		m.b = append(m.b, r.args[:min(len(r.args), MaxDatagram-len(m.b))]...)
	}
	return m.end()
}

// done is the message that ends the answer to a dump.
func done(r *request) []byte {
	m := begin(header{kind: typeDone, flags: flagMulti, seq: r.seq, port: r.port})
	m.b = binary.NativeEndian.AppendUint32(m.b, 0)
	return m.end()
}
