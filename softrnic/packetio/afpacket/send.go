package afpacket

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/spin"
)

// sendRetries bounds how often one Send yields and tries again when the kernel has no room.
const sendRetries = 8

// sender holds the vectors of one sendmmsg call. They are in the Go heap, so that the collector knows the frames
// that they point to while the kernel reads them.
type sender struct {
	vnet [batchSize][vnetLen]byte
	iov  [batchSize][2]unix.Iovec
	hdrs [batchSize]mmsghdr
}

func newSender() *sender {
	s := new(sender)
	for i := range s.hdrs {
		s.iov[i][0].Base = &s.vnet[i][0]
		s.iov[i][0].SetLen(vnetLen)
		s.hdrs[i].hdr.Iov = &s.iov[i][0]
		s.hdrs[i].hdr.SetIovlen(2)
	}
	return s
}

// fill prepares up to batchSize frames.
func (s *sender) fill(frames []packetio.Frame) int {
	n := min(len(frames), batchSize)
	for i := range n {
		f := &frames[i]
		encodeVnet(&s.vnet[i], f)
		s.iov[i][1].Base = unsafe.SliceData(f.Data)
		s.iov[i][1].SetLen(len(f.Data))
	}
	return n
}

// Send transmits the frames of b in order. It retries a bounded number of times when the kernel has no room, and then
// drops and counts, as it does with frames that the link refuses and while the link is down.
func (p *Port) Send(b *packetio.Batch) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	left, tries := 0, 0
	for rest := b.Frames; len(rest) > 0; {
		n := p.tx.fill(rest)
		for i := 0; i < n; {
			sent, _, errno := unix.Syscall6(unix.SYS_SENDMMSG, uintptr(p.fd), uintptr(unsafe.Pointer(&p.tx.hdrs[i])), uintptr(n-i), unix.MSG_DONTWAIT, 0, 0)
			if errno == 0 && sent > 0 {
				p.countSent(rest[i : i+int(sent)])
				left, i = left+int(sent), i+int(sent)
				continue
			}
			retry, err := p.refused(errno)
			if err != nil {
				return left, err
			}
			if retry && tries < sendRetries {
				tries++
				spin.Yield()
				continue
			}
			p.stats.TxDropped += packets(&rest[i])
			i++
		}
		rest = rest[n:]
	}
	return left, nil
}

// refused says what to do with a frame that sendmmsg did not take: try again, drop it (false, nil), or give up the port.
func (p *Port) refused(errno unix.Errno) (retry bool, err error) {
	switch errno {
	case unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.ENOMEM:
		return true, nil
	case unix.ENETDOWN:
		// The link is down, or was: the kernel reports the change once, on whatever call comes next.
		return true, nil
	case unix.ENXIO, unix.ENODEV:
		return false, p.checkGone()
	case unix.EBADF, unix.ENOTSOCK:
		p.err = ErrClosed
		return false, p.err
	default: // EMSGSIZE, EINVAL and the like concern the frame
		return false, nil
	}
}

func (p *Port) countSent(frames []packetio.Frame) {
	for i := range frames {
		p.stats.TxPackets += packets(&frames[i])
		p.stats.TxBytes += uint64(len(frames[i].Data))
	}
}
