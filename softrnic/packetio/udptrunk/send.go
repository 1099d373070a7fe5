package udptrunk

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/pollpace"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

// sendRetries is how many times a send yields the processor and tries again if the kernel has no room.
const sendRetries = 8

// maxCalls is how many messages a train has at most: one is enough for all but those with the longest
// frames.
const maxCalls = 4

// segmentOob is the length of the control message UDP_SEGMENT.
const segmentOob = 24

// sender sends trains.
type sender struct {
	train []byte
	oob   [maxCalls][segmentOob]byte
	iov   [maxCalls]unix.Iovec
	msgs  [maxCalls]mmsghdr
}

func newSender(v6 bool) *sender {
	s := &sender{train: make([]byte, 0, trunk.TrainSize)}
	for i := range s.msgs {
		s.msgs[i].hdr.Iov = &s.iov[i]
		s.msgs[i].hdr.SetIovlen(1)
		binary.NativeEndian.PutUint64(s.oob[i][:], unix.SizeofCmsghdr+2)
		binary.NativeEndian.PutUint32(s.oob[i][8:], unix.IPPROTO_UDP)
		binary.NativeEndian.PutUint32(s.oob[i][12:], unix.UDP_SEGMENT)
	}
	return s
}

// fill prepares the messages of a train and returns their number.
func (s *sender) fill(t *trunk.Train) (n int) {
	most := min(trunk.MaxSegments, trunk.MaxCall/t.Size) * t.Size
	for b := t.Data; len(b) > 0 && n < maxCalls; n++ {
		part := b[:min(most, len(b))]
		b = b[len(part):]
		s.iov[n].Base = &part[0]
		s.iov[n].SetLen(len(part))
		h := &s.msgs[n].hdr
		h.Control = nil
		h.SetControllen(0)
		if len(part) > t.Size {
			binary.NativeEndian.PutUint16(s.oob[n][unix.SizeofCmsghdr:], uint16(t.Size))
			h.Control = &s.oob[n][0]
			h.SetControllen(segmentOob)
		}
	}
	return n
}

// brief is the largest number of bytes that send sends by unix.RawSyscall, as in package afpacket.
const brief = 2 << 10

// send sends a train. An error means that not all of it was sent.
func (s *sender) send(fd int, t *trunk.Train) error {
	n := s.fill(t)
	for at, tries := 0, 0; at < n; {
		var sent uintptr
		var errno unix.Errno
		vector := unsafe.Pointer(&s.msgs[at])
		if len(t.Data) <= brief {
			sent, _, errno = unix.RawSyscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(vector), uintptr(n-at), unix.MSG_DONTWAIT, 0, 0)
		} else {
			sent, _, errno = unix.Syscall6(unix.SYS_SENDMMSG, uintptr(fd), uintptr(vector), uintptr(n-at), unix.MSG_DONTWAIT, 0, 0)
		}
		if errno == 0 {
			at += int(sent)
			continue
		}
		if !again(errno) || tries == sendRetries {
			return errno
		}
		tries++
		pollpace.Yield()
	}
	return nil
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
