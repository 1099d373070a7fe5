package trunkport

import (
	"encoding/binary"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

const (
	// lengthSize is that of the number in front of a datagram: its length, in network byte order.
	lengthSize = 2
	// inSize is how many bytes a stream has received and not returned at most.
	inSize = 256 << 10
	// mostUnsent is how many bytes wait for the kernel until a stream takes no further datagram.
	mostUnsent = 4 << 20
)

// stream is a TCP connection that carries datagrams.
type stream struct {
	fd int
	// connecting says that the connection is not there yet.
	connecting bool
	// writable says that the kernel is asked to report room.
	writable bool
	// readable says that the kernel may have bytes, broken that the connection has ended, or that its bytes
	// are no datagrams.
	readable, broken bool
	// proven says that a datagram of the peer has come, refused counts the others until then.
	proven  bool
	refused int
	heard   clock.Time // when a datagram of the peer has come last; if none has, when the stream was made

	in   []byte // bytes that have come, of which the first took are taken
	took int
	out  []byte // datagrams with their lengths, of which sent bytes were sent
	sent int
}

// receive asks the kernel for bytes. The datagrams that were returned are gone then.
func (s *stream) receive() {
	if s.in == nil {
		s.in = make([]byte, 0, inSize)
	}
	s.in = s.in[:copy(s.in[:cap(s.in)], s.in[s.took:])]
	s.took = 0
	n, err := unix.Read(s.fd, s.in[len(s.in):cap(s.in)])
	switch {
	case err == unix.EAGAIN || err == unix.EINTR:
		s.readable = err == unix.EINTR
	case err != nil || n == 0:
		s.broken, s.readable = true, false
	default:
		s.in = s.in[:len(s.in)+n]
		s.readable = len(s.in) == cap(s.in)
	}
}

// has reports whether next returns a datagram.
func (s *stream) has() bool {
	b := s.in[s.took:]
	if len(b) < lengthSize {
		return false
	}
	n := int(binary.BigEndian.Uint16(b))
	return n == 0 || n > trunk.MaxDatagram || len(b) >= lengthSize+n
}

// next returns a datagram, if has says that there is one. nil is a length that no datagram has: the stream
// is broken then.
func (s *stream) next() []byte {
	b := s.in[s.took:]
	n := int(binary.BigEndian.Uint16(b))
	if n == 0 || n > trunk.MaxDatagram {
		s.broken, s.readable = true, false
		s.in, s.took = s.in[:0], 0
		return nil
	}
	s.took += lengthSize + n
	return b[lengthSize : lengthSize+n : lengthSize+n]
}

// full reports whether the stream takes no further datagram.
func (s *stream) full() bool { return len(s.out)-s.sent > mostUnsent }

// put adds a datagram to those that flush sends.
func (s *stream) put(d []byte) {
	s.out = append(binary.BigEndian.AppendUint16(s.out, uint16(len(d))), d...)
}

// flush sends what the kernel has room for; nothing before there is a connection.
func (s *stream) flush() {
	if s.connecting {
		return
	}
	for s.sent < len(s.out) && !s.broken {
		n, err := unix.SendmsgN(s.fd, s.out[s.sent:], nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		switch err {
		case nil:
			s.sent += n
		case unix.EINTR:
		case unix.EAGAIN:
			if s.sent >= mostUnsent { // the memory in front is used again
				s.out, s.sent = s.out[:copy(s.out, s.out[s.sent:])], 0
			}
			return
		default:
			s.broken = true
		}
	}
	s.out, s.sent = s.out[:0], 0
}

// waits reports whether bytes have come that were not looked at.
func (s *stream) waits() bool {
	n, err := unix.IoctlGetInt(s.fd, unix.TIOCINQ)
	return s.has() || err == nil && n > 0
}
