package simnet

import "github.com/rdmalab/rdmalab/softrnic/packetio"

// inFlight is a frame on a link or inside a node. data is memory from the Net's frames.
type inFlight struct {
	data                  []byte
	segSize               int32
	csumStart, csumOffset uint16
	csumPartial           bool
	origin                int16 // packetio.Frame.Origin, inside a node
}

func (f *inFlight) frame(port int) packetio.Frame {
	return packetio.Frame{
		Data: f.data, SegSize: int(f.segSize), Port: port,
		CsumPartial: f.csumPartial, CsumStart: f.csumStart, CsumOffset: f.csumOffset,
	}
}

// inFlightOf is a frame with other memory.
func inFlightOf(f *packetio.Frame, data []byte) inFlight {
	return inFlight{
		data: data, origin: f.Origin, segSize: int32(f.SegSize),
		csumPartial: f.CsumPartial, csumStart: f.CsumStart, csumOffset: f.CsumOffset,
	}
}

// frames gives out memory for frames in a few sizes and takes it back, so that a run does not
// allocate once the pool has enough.
type frames struct {
	free [len(poolSizes)][][]byte
	// given is the buffer of the frame at hand; nil if there is none, or if the frame is on its way again.
	given []byte
}

// poolSizes are the capacities in bytes. In this order, they have room for an acknowledgement, a
// standard Ethernet frame, a packet with a path MTU of 4 KiB, and a super-frame.
var poolSizes = [...]int{256, 1600, 4352, 66 << 10}

// get returns n bytes with undefined content. put takes them back.
func (p *frames) get(n int) []byte {
	for i, size := range poolSizes {
		if n > size {
			continue
		}
		if k := len(p.free[i]); k > 0 {
			b := p.free[i][k-1]
			p.free[i] = p.free[i][:k-1]
			return b[:n]
		}
		return make([]byte, n, size)
	}
	return make([]byte, n)
}

func (p *frames) put(b []byte) {
	for i, size := range poolSizes {
		if cap(b) == size {
			p.free[i] = append(p.free[i], b)
			return
		}
	}
}

// spare returns a free buffer of a capacity, nil if there is none.
func (p *frames) spare(size int) []byte {
	for i, s := range poolSizes {
		if k := len(p.free[i]); s == size && k > 0 {
			b := p.free[i][k-1]
			p.free[i] = p.free[i][:k-1]
			return b
		}
	}
	return nil
}

// copyOf returns a copy of f in memory from the pool.
func (p *frames) copyOf(f *packetio.Frame) inFlight {
	data := p.get(len(f.Data))
	copy(data, f.Data)
	return inFlightOf(f, data)
}

// carry is copyOf, but if f is in the buffer of the frame at hand, and will not change, the buffer goes along.
func (p *frames) carry(f *packetio.Frame, changes bool) inFlight {
	if changes || len(p.given) == 0 || len(f.Data) == 0 || &p.given[0] != &f.Data[0] || len(f.Data) > cap(p.given) {
		return p.copyOf(f)
	}
	data := p.given[:len(f.Data)]
	p.given = nil
	return inFlightOf(f, data)
}

// takeBack puts the buffer of the frame at hand into the pool, unless it is on its way again.
func (p *frames) takeBack() {
	if p.given != nil {
		p.put(p.given)
		p.given = nil
	}
}
