package trunkport

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

// sendRetries is how many times a send yields the processor and tries again if the kernel has no room.
const sendRetries = 8

const (
	// maxCalls is how many messages a train has at most: one is enough for all but those with the longest
	// frames.
	maxCalls = 4
	// maxMessages is how many it has if the kernel does not cut messages into datagrams: one each.
	maxMessages = trunk.MaxPieces
)

// segmentOob is the length of the control message UDP_SEGMENT.
const segmentOob = 24

// sender sends trains.
type sender struct {
	oob   [maxCalls][segmentOob]byte
	iov   [maxMessages]unix.Iovec
	msgs  [maxMessages]mmsghdr
	found *refusals
}

// sender makes a sender that adds what the kernel refuses.
func (r *refusals) sender() *sender {
	s := &sender{found: r}
	for i := range s.msgs {
		s.msgs[i].hdr.Iov = &s.iov[i]
		s.msgs[i].hdr.SetIovlen(1)
	}
	for i := range s.oob {
		binary.NativeEndian.PutUint64(s.oob[i][:], unix.SizeofCmsghdr+2)
		binary.NativeEndian.PutUint32(s.oob[i][8:], unix.IPPROTO_UDP)
		binary.NativeEndian.PutUint32(s.oob[i][12:], unix.UDP_SEGMENT)
	}
	return s
}

// fill prepares messages of at most `most` bytes from datagrams that have size bytes each, all but the last,
// and returns their number.
func (s *sender) fill(b []byte, size, most int) (n int) {
	for ; len(b) > 0 && n < maxMessages; n++ {
		part := b[:min(most, len(b))]
		b = b[len(part):]
		s.iov[n].Base = &part[0]
		s.iov[n].SetLen(len(part))
		h := &s.msgs[n].hdr
		h.Control = nil
		h.SetControllen(0)
		if len(part) > size {
			binary.NativeEndian.PutUint16(s.oob[n][unix.SizeofCmsghdr:], uint16(size))
			h.Control = &s.oob[n][0]
			h.SetControllen(segmentOob)
		}
	}
	return n
}

// brief is the largest number of bytes that send sends by unix.RawSyscall, as in package afpacket.
const brief = 2 << 10

// send sends a train. An error means that not all of it was sent; rest is what was not.
func (s *sender) send(fd int, t *trunk.Train) (rest []byte, err error) {
	rest = t.Data
	if !s.found.has(noSegment) {
		most := min(trunk.MaxSegments, trunk.MaxCall/t.Size) * t.Size
		sent, errno := s.messages(fd, s.fill(rest, t.Size, most), len(rest))
		if errno == 0 {
			return nil, nil
		}
		if rest = rest[sent*most:]; !unsegmented(errno) || len(rest) <= t.Size {
			return rest, errno
		}
		// Either the kernel, or the device, does not segment, or it has learnt of a shorter path: then it
		// refuses a single datagram, too.
		sent, single := s.messages(fd, s.fill(rest, t.Size, t.Size), len(rest))
		if sent > 0 {
			s.found.add(noSegment, errno)
		}
		return rest[min(sent*t.Size, len(rest)):], orNil(single)
	}
	sent, errno := s.messages(fd, s.fill(rest, t.Size, t.Size), len(rest))
	return rest[min(sent*t.Size, len(rest)):], orNil(errno)
}

// orNil returns the error of a system call, which is none for 0.
func orNil(errno unix.Errno) error {
	if errno == 0 {
		return nil
	}
	return errno
}

// unsegmented reports whether an error may mean that a message is not cut into datagrams: a device
// without checksums, or a transformation of packets (EIO), a kernel that does not know UDP_SEGMENT, or a
// setting of the socket that excludes it.
func unsegmented(errno unix.Errno) bool {
	switch errno {
	case unix.EIO, unix.EINVAL, unix.ENOPROTOOPT, unix.EOPNOTSUPP:
		return true
	default:
		return false
	}
}

// messages sends the first n messages, which have these bytes, and returns how many it has sent.
func (s *sender) messages(fd, n, bytes int) (at int, errno unix.Errno) {
	for tries := 0; at < n; {
		var sent int
		if sent, errno = s.call(fd, s.msgs[at:n], bytes <= brief); errno == 0 {
			at += sent
			continue
		}
		if errno == unix.ENOSYS && s.found.add(noSendmmsg, errno) {
			continue
		}
		if !again(errno) || tries == sendRetries {
			return at, errno
		}
		tries++
		pollpace.Yield()
	}
	return at, 0
}

// call sends messages by one system call, and returns how many it has sent.
func (s *sender) call(fd int, list []mmsghdr, brief bool) (sent int, errno unix.Errno) {
	call, vector, n := uintptr(unix.SYS_SENDMMSG), unsafe.Pointer(&list[0]), uintptr(len(list))
	if s.found.has(noSendmmsg) {
		call, n = unix.SYS_SENDMSG, unix.MSG_DONTWAIT // its third argument; a message begins with its header
	}
	var r uintptr
	if brief {
		r, _, errno = unix.RawSyscall6(call, uintptr(fd), uintptr(vector), n, unix.MSG_DONTWAIT, 0, 0)
	} else {
		r, _, errno = unix.Syscall6(call, uintptr(fd), uintptr(vector), n, unix.MSG_DONTWAIT, 0, 0)
	}
	if call == unix.SYS_SENDMSG {
		r = 1
	}
	return int(r), errno
}

// again reports whether to try again: the kernel had no room for a moment, or it has reported that an
// earlier datagram found no socket.
func again(errno unix.Errno) bool {
	switch errno {
	case unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.ENOMEM, unix.ECONNREFUSED:
		return true
	default:
		return false
	}
}

// sendOne sends one datagram.
func sendOne(fd int, d []byte) error {
	for tries := 0; ; tries++ {
		_, _, errno := unix.RawSyscall6(unix.SYS_SENDTO, uintptr(fd), uintptr(unsafe.Pointer(&d[0])), uintptr(len(d)), unix.MSG_DONTWAIT, 0, 0)
		switch {
		case errno == 0:
			return nil
		case !again(errno) || tries == sendRetries:
			return errno
		}
		pollpace.Yield()
	}
}
