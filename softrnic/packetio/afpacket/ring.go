package afpacket

import (
	"fmt"
	"sync/atomic"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Geometry of the ring in bytes.
const (
	ringBlock = 64 << 10
	// slotHead is the number of bytes that the kernel needs in a slot in front of the frame: for its
	// header, a link address, the offload header, and alignment.
	slotHead  = 96
	slotAlign = 64
	minSlot   = 2048
	// maxSlot is the largest slot, for an interface with a huge MTU; longer frames come through the
	// socket's queue.
	maxSlot = 9216 + slotHead + slotAlign
)

// ring receives through a TPACKET_V2 ring: the kernel writes a frame into a slot and sets its
// status; the port reads the status without a system call, and clears it when the caller no longer
// uses the frame.
type ring struct {
	fd    int
	mem   []byte
	slots []uint32 // offset of each slot in mem
	size  int      // bytes of a slot
	// head is the index of the slot that recv reads next. A waiter reads head concurrently with
	// recv.
	head atomic.Uint32
	held int // number of slots before head that the caller still uses
	long *longFrames
}

// newRing maps a ring of at least n slots for frames of an interface with the given MTU.
func newRing(fd, n, mtu int) (*ring, error) {
	size := min(max(mtu+14+tagLen+slotHead, minSlot), maxSlot)
	size = (size + slotAlign - 1) / slotAlign * slotAlign
	per := ringBlock / size
	blocks := (n + per - 1) / per
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_VERSION, unix.TPACKET_V2); err != nil {
		return nil, fmt.Errorf("TPACKET_V2: %w", err)
	}
	// The kernel also queues a frame that is longer than its slot on the socket, complete, and
	// marks the slot.
	if err := unix.SetsockoptInt(fd, unix.SOL_PACKET, unix.PACKET_COPY_THRESH, 1); err != nil {
		return nil, fmt.Errorf("PACKET_COPY_THRESH: %w", err)
	}
	req := unix.TpacketReq{Block_size: ringBlock, Block_nr: uint32(blocks), Frame_size: uint32(size), Frame_nr: uint32(blocks * per)}
	if err := unix.SetsockoptTpacketReq(fd, unix.SOL_PACKET, unix.PACKET_RX_RING, &req); err != nil {
		return nil, fmt.Errorf("receive ring of %d x %d bytes: %w", blocks, ringBlock, err)
	}
	mem, err := unix.Mmap(fd, 0, blocks*ringBlock, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		return nil, fmt.Errorf("map receive ring: %w", err)
	}
	long, err := newLongFrames(fd)
	if err != nil {
		return nil, err
	}
	r := &ring{fd: fd, mem: mem, size: size, long: long}
	for b := range blocks {
		for s := range per {
			r.slots = append(r.slots, uint32(b*ringBlock+s*size))
		}
	}
	return r, nil
}

func (r *ring) String() string { return fmt.Sprintf("ring %dx%d", len(r.slots), r.size) }

func (r *ring) status(slot int) *uint32 {
	return (*uint32)(unsafe.Pointer(&r.mem[r.slots[slot]]))
}

func (r *ring) ready() bool {
	return atomic.LoadUint32(r.status(int(r.head.Load())))&unix.TP_STATUS_USER != 0
}

// arrived returns when the kernel put the frame into the ring that recv reads next. The time can be that of a
// frame behind it, or wrong while the kernel writes it.
func (r *ring) arrived() (at time.Time, ok bool) {
	if !r.ready() {
		return at, false
	}
	h := (*unix.Tpacket2Hdr)(unsafe.Pointer(&r.mem[r.slots[r.head.Load()]]))
	return time.Unix(int64(h.Sec), int64(h.Nsec)), true
}

// release returns the slots of the last recv to the kernel.
func (r *ring) release() {
	for ; r.held > 0; r.held-- {
		slot := int(r.head.Load()) - r.held
		if slot < 0 {
			slot += len(r.slots)
		}
		atomic.StoreUint32(r.status(slot), unix.TP_STATUS_KERNEL)
	}
}

func (r *ring) recv(b *packetio.Batch, port int) (cut uint64) {
	r.release()
	r.long.reset()
	for range min(batchSize, len(r.slots)) { // the bound: a slot that the caller still holds looks like one with a new frame
		if !r.ready() || r.long.full() {
			break
		}
		head := r.head.Load()
		slot := r.mem[r.slots[head]:][:r.size]
		h := (*unix.Tpacket2Hdr)(unsafe.Pointer(&slot[0]))
		r.head.Store((head + 1) % uint32(len(r.slots)))
		r.held++
		f := packetio.Frame{Port: port}
		mac, n := int(h.Mac), int(h.Snaplen)
		switch {
		case h.Status&unix.TP_STATUS_COPY != 0:
			if !r.long.next(&f, h) {
				cut++
				continue
			}
		case h.Snaplen < h.Len || mac < vnetLen+tagLen || mac+n > len(slot) || n < macsLen+2:
			cut++
			continue
		default:
			f.Data = slot[mac : mac+n : mac+n]
			decodeVnet(slot[mac-vnetLen:mac], &f)
			if tpid, ok := tagOf(h); ok {
				insertTag(slot, mac, n, tpid, h.Vlan_tci, &f)
			}
		}
		b.Frames = append(b.Frames, f)
	}
	return cut
}

// tagOf returns the TPID of the VLAN tag that the kernel has removed from a frame.
func tagOf(h *unix.Tpacket2Hdr) (tpid uint16, ok bool) {
	if h.Status&unix.TP_STATUS_VLAN_VALID == 0 {
		return 0, false
	}
	if h.Status&unix.TP_STATUS_VLAN_TPID_VALID == 0 {
		return tpid8021Q, true
	}
	return h.Vlan_tpid, true
}

// close maps zero pages over the ring. So the kernel frees the ring when the socket is closed, and a
// frame that is used too late reads as zeros.
func (r *ring) close() {
	_, _ = unix.MmapPtr(-1, 0, unsafe.Pointer(&r.mem[0]), uintptr(len(r.mem)),
		unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON|unix.MAP_FIXED) // cannot fail on a valid range
	r.long.close()
}

// longFrames receives frames that did not fit into a slot of the receive ring, with one system call
// each. Each batch uses the buffers from the first one on, so that those in use stay in the cache.
type longFrames struct {
	fd   int
	mem  []byte
	used int
}

// Buffers for long frames: their number in a batch, the bytes of each, and the room in front of the
// frame.
const (
	longCount = 16
	longSize  = 72 << 10
	longHead  = 32
)

func newLongFrames(fd int) (*longFrames, error) {
	mem, err := unix.Mmap(-1, 0, longCount*longSize, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return nil, fmt.Errorf("map receive buffers: %w", err)
	}
	return &longFrames{fd: fd, mem: mem}, nil
}

func (l *longFrames) reset()     { l.used = 0 }
func (l *longFrames) full() bool { return l.used == longCount }

// next takes the oldest frame from the socket's queue. It returns false if the queue is empty.
func (l *longFrames) next(f *packetio.Frame, h *unix.Tpacket2Hdr) bool {
	buf := l.mem[l.used*longSize:][:longSize]
	const start = longHead - vnetLen
	n, errno := recv(l.fd, buf[start:])
	if errno == unix.ENETDOWN { // the kernel first reports that the link went down
		n, errno = recv(l.fd, buf[start:])
	}
	if errno != 0 || n < vnetLen+macsLen+2 {
		return false
	}
	l.used++
	n -= vnetLen
	f.Data = buf[longHead : longHead+n : longHead+n]
	decodeVnet(buf[start:longHead], f)
	if tpid, ok := tagOf(h); ok {
		insertTag(buf, longHead, n, tpid, h.Vlan_tci, f)
	}
	return true
}

func (l *longFrames) close() {
	_ = unix.Madvise(l.mem, unix.MADV_DONTNEED) // returns the pages to the kernel; the range stays valid
}

// recv is recvfrom without an address, and does not wait. unix.Recvfrom would allocate an address
// for each frame.
func recv(fd int, b []byte) (int, unix.Errno) {
	n, _, errno := unix.RawSyscall6(unix.SYS_RECVFROM, uintptr(fd), uintptr(unsafe.Pointer(&b[0])), uintptr(len(b)), unix.MSG_DONTWAIT, 0, 0)
	return int(n), errno
}
