package trunkport

import (
	"encoding/binary"
	"unsafe"

	"golang.org/x/sys/unix"
)

// mmsghdr is struct mmsghdr of sendmmsg and recvmmsg.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   uint32
}

const (
	// messages is how many messages one system call receives; each may have many datagrams of equal length.
	messages = 16
	// messageSize is the length of the longest message.
	messageSize = 1 << 16
	// oobSize is room for the control message with the length of a message's datagrams.
	oobSize = 64
)

// receiver receives messages and takes them apart.
type receiver struct {
	mem  []byte
	oob  [messages][oobSize]byte
	iov  [messages]unix.Iovec
	msgs [messages]mmsghdr
	// got is how many messages the last call has received, at the one that is taken apart, and rest what is
	// left of it; size is the length of its datagrams.
	got, at, size int
	rest          []byte
	found         *refusals
}

// receiver makes a receiver that adds what the kernel refuses.
func (r *refusals) receiver() *receiver {
	x := &receiver{mem: make([]byte, messages*messageSize), found: r}
	for i := range x.msgs {
		x.iov[i].Base = &x.mem[i*messageSize]
		x.iov[i].SetLen(messageSize)
		x.msgs[i].hdr.Iov = &x.iov[i]
		x.msgs[i].hdr.SetIovlen(1)
	}
	return x
}

// ready reports whether there is a datagram. If all were returned it asks the kernel for others, whose memory
// is that of the former ones.
func (r *receiver) ready(fd int) bool { return r.more() || r.receive(fd) }

// more reports whether next has a datagram.
func (r *receiver) more() bool { return len(r.rest) > 0 || r.at < r.got }

// receive asks the kernel for messages. The former ones are gone then.
func (r *receiver) receive(fd int) bool {
	for i := range r.msgs {
		r.msgs[i].hdr.Control = &r.oob[i][0]
		r.msgs[i].hdr.SetControllen(oobSize)
	}
	r.at, r.got = 0, 0
	first := uintptr(unsafe.Pointer(&r.msgs[0]))
	if !r.found.has(noRecvmmsg) {
		n, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(fd), first, messages, unix.MSG_DONTWAIT, 0, 0)
		if errno == 0 {
			r.got = int(n)
			return r.got > 0
		}
		if errno != unix.ENOSYS {
			return false // nothing has come, or only the report that the peer has no socket
		}
		r.found.add(noRecvmmsg, errno)
	}
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVMSG, uintptr(fd), first, unix.MSG_DONTWAIT, 0, 0, 0)
	if errno != 0 {
		return false
	}
	r.msgs[0].n, r.got = uint32(n), 1
	return true
}

// next returns the next datagram, if more says that there is one. Its memory is valid until ready asks the
// kernel.
func (r *receiver) next() []byte {
	if len(r.rest) == 0 {
		m := &r.msgs[r.at]
		r.rest = r.mem[r.at*messageSize:][:m.n]
		r.size = segment(r.oob[r.at][:m.hdr.Controllen])
		r.at++
		if len(r.rest) == 0 {
			return nil // an empty datagram, which the end refuses
		}
	}
	n := len(r.rest)
	if r.size > 0 {
		n = min(n, r.size)
	}
	d := r.rest[:n:n]
	r.rest = r.rest[n:]
	return d
}

// segment returns the length of the datagrams of a message, all but the last, from its control message; 0: it
// is one datagram.
func segment(oob []byte) int {
	const head = unix.SizeofCmsghdr
	for len(oob) >= head {
		n := binary.NativeEndian.Uint64(oob)
		if n < head || n > uint64(len(oob)) {
			return 0
		}
		level, kind := binary.NativeEndian.Uint32(oob[8:]), binary.NativeEndian.Uint32(oob[12:])
		if level == unix.IPPROTO_UDP && kind == unix.UDP_GRO && n >= head+4 {
			return int(binary.NativeEndian.Uint32(oob[head:]))
		}
		oob = oob[min(uint64(len(oob)), (n+7)&^7):]
	}
	return 0
}
