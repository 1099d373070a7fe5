package afpacket

import (
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/pollpace"
)

// When the kernel has no buffer for a frame, or reports that the link is down, a Send yields the
// processor and tries again. It does so at most sendRetries times. After it has begun to send
// packet by packet, it may do so sendRetries times more.
const sendRetries = 8

// sender has the vectors of one sendmmsg call. They are in the Go heap, so that the garbage
// collector does not free the frames to which they point while the kernel reads them.
type sender struct {
	vnet [batchSize][vnetLen]byte
	// heads are buffers for the headers of super-frames, one for each message.
	heads [batchSize][]byte
	// iov has the parts of all messages: of a single frame the offload header and the frame, of a
	// super-frame the offload header, the headers and then the payload of each of its packets.
	iov  [2 * batchSize]unix.Iovec
	hdrs [batchSize]mmsghdr
	// span has the number of frames in each message: 1, or the packets of a super-frame.
	span [batchSize]int
}

func newSender() *sender {
	s := new(sender)
	for i := range s.heads {
		s.heads[i] = make([]byte, 0, packetio.MaxHeaders)
	}
	return s
}

// fill prepares messages for up to batchSize frames and returns the numbers of messages and frames.
// With limit > 0 it merges runs of frames into super-frames; a frame of more than limit bytes is
// not merged.
func (s *sender) fill(frames []packetio.Frame, limit int) (messages, n int) {
	at := 0
	add := func(b []byte) {
		s.iov[at].Base = unsafe.SliceData(b)
		s.iov[at].SetLen(len(b))
		at++
	}
	for n < len(frames) && n < batchSize {
		rest := frames[n:min(len(frames), batchSize)]
		first := at
		add(s.vnet[messages][:])
		run := packetio.Run{Frames: 1}
		if limit > 0 && len(rest) > 1 {
			run = packetio.FirstRun(rest, limit)
		}
		if run.Frames == 1 {
			encodeVnet(&s.vnet[messages], &rest[0])
			add(rest[0].Data)
		} else {
			head, super := run.AppendHeaders(s.heads[messages][:0], rest)
			encodeVnet(&s.vnet[messages], &super)
			add(head)
			for i := range run.Frames {
				add(rest[i].Data[run.Headers:])
			}
		}
		h := &s.hdrs[messages].hdr
		h.Iov = &s.iov[first]
		h.SetIovlen(at - first)
		s.span[messages] = run.Frames
		messages++
		n += run.Frames
	}
	return messages, n
}

// Send transmits the frames of b in order. If the kernel has no buffer for a frame, Send tries
// again (see sendRetries). Then it drops and counts the frame, as it does with frames that the link
// refuses and while the link is down.
func (p *Port) Send(b *packetio.Batch) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.err != nil {
		return 0, p.err
	}
	left, tries, bytes := 0, 0, 0
	for i := range b.Frames {
		bytes += len(b.Frames[i].Data)
	}
	limit := p.merge.begin()
	alone := -1 // number of frames sent before Send began to send packet by packet; -1: not begun
	for rest := b.Frames; len(rest) > 0; {
		messages, _ := p.tx.fill(rest, limit)
		for i := 0; i < messages; {
			sent, errno := sendNow(p.fd, p.tx.hdrs[i:messages], bytes)
			if errno == 0 && sent > 0 {
				for range sent {
					n := p.tx.span[i]
					p.countSent(rest[:n])
					rest, left = rest[n:], left+n
					i++
				}
				continue
			}
			retry, err := p.refused(errno)
			if err != nil {
				return left, err
			}
			if retry && tries < sendRetries {
				tries++
				pollpace.Yield()
				continue
			}
			if p.tx.span[i] > 1 && p.merge.refused(errno) {
				limit, tries, alone = 0, 0, left
				break // send the other frames packet by packet
			}
			for range p.tx.span[i] {
				p.stats.TxDropped += packets(&rest[0])
				rest = rest[1:]
			}
			i++
		}
	}
	if alone >= 0 && left > alone {
		p.merge.pause()
	}
	return left, nil
}

// refused handles the error with which sendmmsg has refused a message. retry says whether Send must
// try again; otherwise the frame is dropped. An error ends the port.
func (p *Port) refused(errno unix.Errno) (retry bool, err error) {
	switch errno {
	case unix.EAGAIN, unix.ENOBUFS, unix.EINTR, unix.ENOMEM:
		return true, nil
	case unix.ENETDOWN:
		// The link is down, or was down for a moment. The kernel reports this once, in the next call of
		// any kind.
		return true, nil
	case unix.ENXIO, unix.ENODEV:
		return false, p.checkGone()
	case unix.EBADF, unix.ENOTSOCK:
		p.err = ErrClosed
		return false, p.err
	default: // EMSGSIZE, EINVAL and others: an error of this frame alone
		return false, nil
	}
}

func (p *Port) countSent(frames []packetio.Frame) {
	for i := range frames {
		p.stats.TxPackets += packets(&frames[i])
		p.stats.TxBytes += uint64(len(frames[i].Data))
	}
}
