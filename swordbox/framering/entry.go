package framering

import (
	"encoding/binary"

	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// header is the beginning of an entry. It names the entry, so that the ring notices a stale one
// (unless Config.Trusting), and says which part of which frame follows. Numbers are big-endian. The
// number before a group of fields is its offset, and the number behind a field is the length of the
// field, both in bytes:
//
//	 0: tag 4, place 4, number 4
//	12: length 2, part 1, last 1
//	16: segment size 2; checksum: start 2, offset 2, unfinished 1
//	23: offload: type 1, header 2, size 2
//	28: zero 4
type header struct {
	// tag depends on Config.Epoch and on the connection (Carrier.Nonce) of the ring's first WRITE.
	// place is the position of the entry in the ring, modulo 2³²; positions never restart. number
	// is the number of the frame: Store counts the frames, modulo 2³².
	tag, place, number uint32
	length             uint16 // bytes of the frame in this entry
	part, last         uint8  // numbers of this part and of the frame's last part, from 0
	// meta has the frame's fields for segmentation and checksum offload. Data and Port have no
	// meaning.
	meta packetio.Frame
}

const (
	// HeaderLen is the length of the header in bytes.
	HeaderLen = 32
	// MinFrame is the length of the shortest frame that a user takes from a ring, in bytes: two MAC
	// addresses and an EtherType. A shorter frame that comes back was changed in the server's
	// memory.
	MinFrame = 14
	// maxParts is the largest number of parts of a frame: a part's number has one byte.
	maxParts = 1 << 8
)

// appendTo appends the header, HeaderLen bytes.
func (h *header) appendTo(b []byte) []byte {
	be := binary.BigEndian
	b = be.AppendUint32(be.AppendUint32(be.AppendUint32(b, h.tag), h.place), h.number)
	b = append(be.AppendUint16(b, h.length), h.part, h.last)
	b = be.AppendUint16(be.AppendUint16(be.AppendUint16(b, uint16(h.meta.SegSize)), h.meta.CsumStart), h.meta.CsumOffset)
	unfinished := byte(0)
	if h.meta.CsumPartial {
		unfinished = 1
	}
	b = append(b, unfinished, h.meta.Offload.Type)
	b = be.AppendUint16(be.AppendUint16(b, h.meta.Offload.HdrLen), h.meta.Offload.Size)
	return append(b, 0, 0, 0, 0)
}

// parse reads an entry and returns the bytes of the frame in it. ok is false if there is no valid
// header.
func (h *header) parse(b []byte) (body []byte, ok bool) {
	if len(b) < HeaderLen {
		return nil, false
	}
	be := binary.BigEndian
	*h = header{tag: be.Uint32(b), place: be.Uint32(b[4:]), number: be.Uint32(b[8:]), length: be.Uint16(b[12:]), part: b[14], last: b[15]}
	h.meta = packetio.Frame{
		SegSize: int(be.Uint16(b[16:])), CsumStart: be.Uint16(b[18:]), CsumOffset: be.Uint16(b[20:]), CsumPartial: b[22] != 0,
		Offload: packetio.Offload{Type: b[23], HdrLen: be.Uint16(b[24:]), Size: be.Uint16(b[26:])},
	}
	body = b[HeaderLen:]
	if int(h.length) > len(body) || h.length == 0 || h.part > h.last {
		return nil, false
	}
	return body[:h.length], true
}

// AppendFrame appends a header of HeaderLen bytes that names no ring, and the frame. The published
// lookup table keeps frames in this form, without a Ring.
func AppendFrame(b []byte, f packetio.Frame) []byte {
	h := header{length: uint16(len(f.Data)), meta: f}
	return append(h.appendTo(b), f.Data...)
}

// ParseFrame reads what AppendFrame has appended. The frame shares the bytes. ok is false if there is
// no valid header.
func ParseFrame(b []byte) (f packetio.Frame, ok bool) {
	var h header
	body, ok := h.parse(b)
	f = h.meta
	f.Data = body
	return f, ok
}
