// Package packetio defines how frames move between a NIC or switch and its links: the interface
// Port of one end of a link, and the Batch that both sides fill. The implementations are in
// packetio/afpacket, packetio/memlink and e2e/memcable.
//
// Ownership: the caller that resets a Batch owns it. Frames that Recv put into a Batch stay valid
// until the next Recv on the same Port or Reset of the Batch, whichever comes first. Send has
// copied or passed on every byte when it returns. One goroutine at a time uses a Port or a Waiter,
// except that any goroutine may call Close and Waiter.Wake.
package packetio

import "time"

// MaxFrame is the length of the longest frame: a TCP super-frame with its Ethernet header and two
// tags.
const MaxFrame = 65536 + 14 + 8

// Frame is one Ethernet frame, or a super-frame: several packets with equal headers that travel as
// one (segmentation offload).
type Frame struct {
	// Data is the frame from the destination MAC on, without FCS.
	Data []byte
	// Open is a packet that is not encoded; nil means that Data is the frame. Only ports and owners that
	// know open packets (Opener) get them.
	Open *Open
	// SegSize is the number of UDP payload bytes of each packet in the frame; 0 means a single
	// packet.
	SegSize int
	// CsumPartial: the UDP or TCP checksum is unfinished; hardware is to complete it. The flag must be
	// passed on to the egress port. Otherwise a kernel socket behind that port drops the frame.
	CsumPartial bool
	// If CsumPartial is set, the checksum covers the frame from byte CsumStart on, and is stored at
	// byte CsumStart+CsumOffset.
	CsumStart, CsumOffset uint16
	// Offload is the segmentation that a host's kernel requests for a TCP super-frame. Code that
	// forwards the frame passes it on unchanged. It is zero for RoCEv2.
	Offload Offload
	// Origin is one more than the port at which a frame came in that a switch sends on, for the
	// accounts of its packet buffer; 0: it came in at none, or the switch has held it.
	Origin int16
	// Port is the ingress port of a received frame, and the egress port of a frame to be sent; 0 if
	// there is only one port.
	Port int
}

// PacketsIn returns how many packets the frames have: a super-frame counts each of its packets.
func PacketsIn(frames []Frame) (n int) {
	for i := range frames {
		n += frames[i].Packets()
	}
	return n
}

// Len returns the length of the frame in bytes.
func (f *Frame) Len() int {
	if f.Open != nil {
		return f.Open.length
	}
	return len(f.Data)
}

// Offload is a segmentation request that only ports interpret (fields of virtio_net_hdr). With it a
// host's TCP super-frame of up to 64 KiB crosses the switch unsegmented.
type Offload struct {
	// Type is VIRTIO_NET_HDR_GSO_*; 0 is none.
	Type uint8
	// HdrLen is the length of all headers in bytes, as a hint. Size is the number of payload bytes of
	// each segment.
	HdrLen, Size uint16
}

// Batch is a list of frames with memory for new frames. Reset keeps the capacity, so that a steady
// state allocates nothing.
type Batch struct {
	Frames []Frame
	arena  []byte
	bytes  int // what Bytes returns
}

// arenaChunk is the size in bytes of the first arena, the memory from which Alloc takes its slices:
// it holds two frames of the largest path MTU. An arena that is too small for one batch is replaced
// by one of at least twice the size.
const arenaChunk = 9 << 10

// Reset empties b. Slices from earlier calls of Alloc become invalid.
func (b *Batch) Reset() {
	clear(b.Frames)
	b.Frames = b.Frames[:0]
	b.arena, b.bytes = b.arena[:0], 0
}

// Alloc returns an empty slice with room for n bytes, valid until Reset. The caller appends a frame
// to it and passes the result to Add.
func (b *Batch) Alloc(n int) []byte {
	if cap(b.arena)-len(b.arena) < n {
		// Frames that are already built stay in the old arena; the new one is used again after each
		// Reset.
		b.arena = make([]byte, 0, max(arenaChunk, 2*cap(b.arena), n))
	}
	b.bytes += n
	off := len(b.arena)
	b.arena = b.arena[:off+n]
	return b.arena[off : off : off+n]
}

// Held returns the number of bytes that b keeps for new frames.
func (b *Batch) Held() int { return cap(b.arena) }

// Trim resets b, and gives its memory back to the garbage collector if it is more than most bytes.
// Slices from earlier calls of Alloc stay as they are.
func (b *Batch) Trim(most int) {
	if cap(b.arena) > most {
		*b = Batch{}
		return
	}
	b.Reset()
}

// Add appends a frame of a single packet. The bytes are not copied.
func (b *Batch) Add(port int, data []byte) {
	b.Frames = append(b.Frames, Frame{Data: data, Port: port})
}

// Bytes returns the number of bytes that Alloc has given out since Reset, and that open packets have.
func (b *Batch) Bytes() int { return b.bytes }

// Copy appends a copy of f whose bytes belong to b.
func (b *Batch) Copy(f Frame) {
	f.Data = append(b.Alloc(len(f.Data)), f.Data...)
	b.Frames = append(b.Frames, f)
}

// Port is one end of a link.
type Port interface {
	// Recv resets b and appends the frames that have arrived, at most the port's batch size,
	// without waiting. It returns their number. An error means that the port can no longer be used.
	Recv(b *Batch) (int, error)
	// Send transmits the frames of b in order and returns how many were sent. Frames that the link
	// refuses (no buffer, too long) are dropped and counted by the port, as by a full transmit
	// ring. An error means that the port can no longer be used.
	Send(b *Batch) (int, error)
	// Close releases the port and ends every Wait on it. A second Close does nothing.
	Close() error
}

// Carrier is a Port without a thread that moves its frames: the threads that send frames carry them on.
type Carrier interface {
	Port
	// Serve sets the functions by which other threads make the owner of the port handle the frames that
	// have arrived. handle does so, and returns true. It does not wait: if another thread is inside the
	// owner, it returns false, and that thread calls Carry when it has left. wake makes a goroutine of
	// the owner call Carry soon.
	Serve(handle func() bool, wake func())
	// Carry carries frames on until none waits. A thread calls it after it has left the owner of the
	// port, in case it has sent frames, or some have arrived meanwhile.
	Carry()
}

// minFrame is the length of the shortest frame: an Ethernet header.
const minFrame = 14

// Fits reports whether a link with this MTU takes f. A packet may have as many bytes as the MTU, an
// Ethernet header and, if it has one, a VLAN tag together. A super-frame may be longer.
func (f *Frame) Fits(mtu int) bool {
	n := f.Len()
	switch {
	case n < minFrame || n > MaxFrame || f.SegSize > MaxFrame:
		return false
	case f.Open != nil:
		return n <= mtu+minFrame
	}
	if f.SegSize > 0 || f.Offload.Type != 0 {
		return true
	}
	const tag = 4
	limit := mtu + minFrame
	if f.Data[12] == 0x81 && f.Data[13] == 0 {
		limit += tag
	}
	return n <= limit
}

// Waiter blocks its caller until one of its ports has frames. It may poll for a while first.
type Waiter interface {
	// Wait returns when a port has frames, when Wake was called since the last Wait returned, or
	// when d has passed; d < 0 means no limit, 0 does not wait.
	Wait(d time.Duration) error
	// Wake ends the current or the next Wait. It may be called from any goroutine.
	Wake()
	// Close releases the resources of the waiter, not its ports.
	Close() error
}

// Stats has the counters of a port in packets (a super-frame counts each of its packets) and bytes.
type Stats struct {
	RxPackets, RxBytes uint64
	TxPackets, TxBytes uint64
	// RxDropped counts frames that arrived and found no buffer, TxDropped frames that the link
	// refused.
	RxDropped, TxDropped uint64
}
