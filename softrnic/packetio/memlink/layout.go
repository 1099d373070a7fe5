package memlink

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/ipc/ring"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Limits of one direction of a link: from the host to the switch, or from the switch to the host.
const (
	// Slots is the largest number of frames in flight, as in the receive ring of a packet socket.
	Slots = 512
	// DataBytes is the largest number of bytes in flight, as in the queue of a packet socket.
	DataBytes = 8 << 20
	// batchSize is the largest number of frames that one Recv returns.
	batchSize = 64
	// minFrame is the length of the shortest frame: an Ethernet header.
	minFrame = 14
)

// Offsets in the memory of one direction of a link. Each word has a cache line of its own:
//
//	tail | head | asleep | dropped | Slots entries | DataBytes of frames
const (
	offTail    = 0   // number of frames that the sender has published
	offHead    = 64  // number of frames that the receiver has taken
	offAsleep  = 128 // 1: the receiver waits for its bell. Both sides write it
	offDropped = 192 // number of packets that the sender dropped because the ring was full
	offEntries = 256
	entryLen   = 32
	offData    = offEntries + Slots*entryLen
	directLen  = offData + DataBytes
	// memoryLen is the length of a link's memory: the direction to the switch, then that to the
	// host.
	memoryLen = 2 * directLen
	// align is the alignment of frames, a cache line.
	align = 64
)

// words are the words of a direction's memory that both ends of the link access.
type words struct{ tail, head, asleep, dropped *ring.Shared }

func wordsOf(mem []byte) words {
	return words{ring.WordAt(mem, offTail), ring.WordAt(mem, offHead), ring.WordAt(mem, offAsleep), ring.WordAt(mem, offDropped)}
}

// entry returns the memory of the entry at position pos.
func entry(mem []byte, pos uint64) []byte {
	at := offEntries + int(pos%Slots)*entryLen
	return mem[at : at+entryLen : at+entryLen]
}

var le = binary.LittleEndian

// putEntry writes into b the entry that describes f: a frame of length bytes whose data begins at
// offset.
func putEntry(b []byte, offset, length int, f *packetio.Frame) {
	le.PutUint32(b[0:], uint32(offset))
	le.PutUint32(b[4:], uint32(length))
	le.PutUint32(b[8:], uint32(f.SegSize))
	b[12], b[13], b[14], b[15] = 0, f.Offload.Type, 0, 0
	if f.CsumPartial {
		b[12] = 1
	}
	le.PutUint16(b[16:], f.CsumStart)
	le.PutUint16(b[18:], f.CsumOffset)
	le.PutUint16(b[20:], f.Offload.HdrLen)
	le.PutUint16(b[22:], f.Offload.Size)
}

// getEntry reads an entry. It reads each byte once. ok is false if the entry is malformed.
func getEntry(shared []byte) (offset, length int, f packetio.Frame, ok bool) {
	var b [entryLen]byte
	copy(b[:], shared)
	o, n, seg := le.Uint32(b[0:]), le.Uint32(b[4:]), le.Uint32(b[8:])
	if n < minFrame || n > packetio.MaxFrame || o > DataBytes-n || seg > packetio.MaxFrame {
		return 0, 0, f, false
	}
	f = packetio.Frame{
		SegSize: int(seg), CsumPartial: b[12] != 0, CsumStart: le.Uint16(b[16:]), CsumOffset: le.Uint16(b[18:]),
		Offload: packetio.Offload{Type: b[13], HdrLen: le.Uint16(b[20:]), Size: le.Uint16(b[22:])},
	}
	return int(o), int(n), f, true
}
