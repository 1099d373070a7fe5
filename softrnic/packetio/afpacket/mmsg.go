package afpacket

import (
	"encoding/binary"
	"fmt"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// mmsghdr is struct mmsghdr of sendmmsg and recvmmsg.
type mmsghdr struct {
	hdr unix.Msghdr
	n   uint32
	_   uint32
}

// mmsgReceiver receives with recvmmsg: it is the fallback if the kernel refuses a ring. Each call
// is a system call, even if there is no frame.
type mmsgReceiver struct {
	*longFrames
	ctl  [longCount][auxSpace]byte
	iov  [longCount]unix.Iovec
	hdrs [longCount]mmsghdr
}

// auxSpace is room for the control message PACKET_AUXDATA (16 bytes of header, 20 of data).
const auxSpace = 64

func newMmsgReceiver(fd int) (*mmsgReceiver, error) {
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_AUXDATA, 1); err != nil {
		return nil, fmt.Errorf("PACKET_AUXDATA: %w", err)
	}
	long, err := newLongFrames(fd)
	if err != nil {
		return nil, err
	}
	r := &mmsgReceiver{longFrames: long}
	for i := range r.hdrs {
		r.iov[i].Base = &r.mem[i*longSize+longHead-vnetLen]
		r.iov[i].SetLen(longSize - longHead + vnetLen)
		r.hdrs[i].hdr.Iov = &r.iov[i]
		r.hdrs[i].hdr.SetIovlen(1)
		r.hdrs[i].hdr.Control = &r.ctl[i][0]
	}
	return r, nil
}

func (r *mmsgReceiver) String() string { return "recvmmsg" }

func (r *mmsgReceiver) arrived() (at time.Time, ok bool) { return at, false }

// ready asks the kernel by poll(2) whether there is a frame, because there is no ring to check.
func (r *mmsgReceiver) ready() bool {
	fds := [1]unix.PollFd{{Fd: int32(r.fd), Events: unix.POLLIN}}
	n, err := unix.Poll(fds[:], 0)
	return err == nil && n > 0
}

func (r *mmsgReceiver) recv(b *packetio.Batch, port int) (cut uint64) {
	for i := range r.hdrs {
		r.hdrs[i].hdr.SetControllen(auxSpace)
	}
	got, _, errno := unix.RawSyscall6(unix.SYS_RECVMMSG, uintptr(r.fd), uintptr(unsafe.Pointer(&r.hdrs[0])), longCount, unix.MSG_DONTWAIT, 0, 0)
	if errno != 0 {
		return 0 // no frame, or a report that the link went down
	}
	for i := range int(got) {
		m := &r.hdrs[i]
		n := int(m.n) - vnetLen
		if n < macsLen+2 || m.hdr.Flags&unix.MSG_TRUNC != 0 {
			cut++
			continue
		}
		buf := r.mem[i*longSize:][:longSize]
		f := packetio.Frame{Port: port, Data: buf[longHead : longHead+n : longHead+n]}
		decodeVnet(buf[longHead-vnetLen:longHead], &f)
		if tpid, tci, ok := auxTag(r.ctl[i][:m.hdr.Controllen]); ok {
			insertTag(buf, longHead, n, tpid, tci, &f)
		}
		b.Frames = append(b.Frames, f)
	}
	return cut
}

// auxTag returns the VLAN tag in a PACKET_AUXDATA control message (struct tpacket_auxdata: status
// at 0, tci at 16, tpid at 18).
func auxTag(ctl []byte) (tpid, tci uint16, ok bool) {
	const data = unix.SizeofCmsghdr
	if len(ctl) < data+20 ||
		binary.NativeEndian.Uint32(ctl[8:]) != unix.SOL_PACKET || binary.NativeEndian.Uint32(ctl[12:]) != unix.PACKET_AUXDATA {
		return 0, 0, false
	}
	status := binary.NativeEndian.Uint32(ctl[data:])
	if status&unix.TP_STATUS_VLAN_VALID == 0 {
		return 0, 0, false
	}
	tpid, tci = tpid8021Q, binary.NativeEndian.Uint16(ctl[data+16:])
	if status&unix.TP_STATUS_VLAN_TPID_VALID != 0 {
		tpid = binary.NativeEndian.Uint16(ctl[data+18:])
	}
	return tpid, tci, true
}
