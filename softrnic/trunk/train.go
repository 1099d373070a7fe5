package trunk

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// Bounds of trains.
const (
	// maxTrain is how many bytes of records a train has at most: one record with the longest frame.
	maxTrain = recordLen + packetio.MaxFrame
	// MaxPieces is how many pieces a train has at most. Pieces of minPiece bytes are enough for maxTrain.
	MaxPieces = 255
	// MaxCall and MaxSegments bound the bytes and the datagrams that the kernel cuts in one call.
	// Linux 6.8 allows 128, older ones 64.
	MaxCall     = 65507
	MaxSegments = 64
	// TrainSize is the room that a train needs with its headers and tags.
	TrainSize = maxTrain + MaxPieces*Overhead + minPiece
)

// Train is the datagrams of a train, one behind the other. All have Size bytes but the last, which may have
// fewer.
type Train struct {
	Data      []byte
	Size      int
	Datagrams int
}

// packer writes records into the pieces of a train, which already stand where their datagrams will: with
// room for a header in front of each piece and for a tag behind it.
type packer struct {
	b     []byte // headers, pieces and tags so far
	piece int    // length of a piece
	left  int    // room in the present piece
	bytes int    // of records
	first [MaxPieces]uint16
	count int
	// heads is the memory for the headers of super-frames.
	heads [packetio.MaxHeaders]byte
}

func (p *packer) begin(dst []byte, piece int) {
	p.b, p.piece, p.left, p.bytes, p.count = dst[:0], piece, 0, 0, 0
}

// record notes that a record begins here.
func (p *packer) record() {
	if p.left == 0 {
		p.next()
	}
	if f := &p.first[p.count-1]; *f == none {
		*f = uint16(p.piece - p.left)
	}
}

// next begins a piece.
func (p *packer) next() {
	if p.count > 0 {
		p.b = p.b[:len(p.b)+tagLen]
	}
	p.b = p.b[:len(p.b)+headerLen]
	p.left = p.piece
	p.first[p.count] = none
	p.count++
}

func (p *packer) write(b []byte) {
	p.bytes += len(b)
	for len(b) > 0 {
		if p.left == 0 {
			p.next()
		}
		n := min(len(b), p.left)
		p.b = append(p.b, b[:n]...)
		b, p.left = b[n:], p.left-n
	}
}

// room returns how many bytes of records a train may have that goes out in one call of the kernel.
func room(piece int) int { return min(MaxSegments, MaxCall/(piece+Overhead), MaxPieces) * piece }

// pack writes the first frames into a train, and returns how many it has taken: as many as go out in one
// call, and at least one. Packets that follow each other in a flow become one super-frame, if none is
// longer than limit.
func (p *packer) pack(frames []packetio.Frame, limit int) (taken int) {
	var rec [recordLen]byte
	most := room(p.piece)
	for taken < len(frames) {
		rest := frames[taken:]
		run := packetio.Run{Frames: 1}
		if limit > 0 && len(rest) > 1 {
			run = packetio.FirstRun(rest, limit)
		}
		length := len(rest[0].Data)
		if run.Frames > 1 {
			length = run.Headers
			for i := range run.Frames {
				length += len(rest[i].Data) - run.Headers
			}
		}
		if taken > 0 && p.bytes+recordLen+length > most {
			break
		}
		p.record()
		if run.Frames == 1 {
			putRecord(&rec, &rest[0], length)
			p.write(rec[:])
			p.write(rest[0].Data)
		} else {
			head, super := run.AppendHeaders(p.heads[:0], rest)
			putRecord(&rec, &super, length)
			p.write(rec[:])
			p.write(head)
			for i := range run.Frames {
				p.write(rest[i].Data[run.Headers:])
			}
		}
		taken += run.Frames
	}
	p.b = p.b[:len(p.b)+tagLen]
	return taken
}
