package scenario

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// bufferType is the EtherType of the senders' frames, one of those for local experiments.
const bufferType = 0x88b5

// bufferOracle makes the senders' frames, and checks those that arrive at the host behind the slow
// port. It uses no state of the switch. A frame's payload is: number of the sender, 1 byte | number
// of the frame, 4 | length of the frame, 2 | bytes that depend on all three.
type bufferOracle struct {
	run     *bufferRun
	taken   int // frames that have reached the switch while it was up
	arrived int
	last    clock.Time            // when the latest frame arrived
	next    [bufferSenders]uint32 // for each sender, 1 + the number of its last frame that arrived
	err     error
}

// bufferHead is the length of the Ethernet header and of the first three fields of the payload.
const bufferHead = 14 + 7

// frame makes frame number n of a sender, with a random length.
func (o *bufferOracle) frame(d *draw, sender, n int) []byte {
	return o.build(sender, uint32(n), max(bufferHead, d.between(o.run.plan.least, o.run.plan.most)))
}

func (o *bufferOracle) build(sender int, n uint32, size int) []byte {
	rack := o.run.env.rack
	b := make([]byte, size)
	to, from := rack.Host(bufferTo).Spec.MAC, rack.Host(fmt.Sprintf("cn%d", sender)).Spec.MAC
	copy(b, to[:])
	copy(b[6:], from[:])
	binary.BigEndian.PutUint16(b[12:], bufferType)
	b[14] = byte(sender)
	binary.BigEndian.PutUint32(b[15:], n)
	binary.BigEndian.PutUint16(b[19:], uint16(size))
	for i := bufferHead; i < size; i++ {
		b[i] = byte(uint32(i)*7 + n*13 + uint32(sender)*29)
	}
	return b
}

// wrap puts a tap in front of the host behind the slow port, and one in front of the switch. The
// tap of the host gives the frames of the senders to the oracle, and all other frames to the host.
// The tap of the switch counts the frames of the senders.
func (o *bufferOracle) wrap(name string, n simnet.Node) simnet.Node {
	switch name {
	case bufferTo:
		return &simnet.Tap{Node: n, Pass: func(now clock.Time, _ int, f *packetio.Frame) bool {
			if !isBuffered(f.Data) {
				return true
			}
			o.last = now
			o.see(f.Data)
			return false
		}}
	case rackfile.SwitchName:
		return &simnet.Tap{Node: n, Pass: func(_ clock.Time, _ int, f *packetio.Frame) bool {
			if isBuffered(f.Data) {
				o.taken++
			}
			return true
		}}
	}
	return n
}

// isBuffered reports whether frame b is one of the senders.
func isBuffered(b []byte) bool {
	return len(b) >= 14 && binary.BigEndian.Uint16(b[12:]) == bufferType
}

// see checks a frame of a sender that has arrived: its bytes must be those that were sent, and
// neither this frame nor a later one of the sender may have arrived before.
func (o *bufferOracle) see(b []byte) {
	o.arrived++
	if o.err != nil {
		return
	}
	if len(b) < bufferHead || b[14] >= bufferSenders {
		o.err = fmt.Errorf("a frame that no host has sent: %x", b[:min(len(b), 32)])
		return
	}
	sender, n, size := int(b[14]), binary.BigEndian.Uint32(b[15:]), int(binary.BigEndian.Uint16(b[19:]))
	switch {
	case size != len(b) || !bytes.Equal(b, o.build(sender, n, size)):
		o.err = fmt.Errorf("frame %d of sender %d has other bytes than were sent", n, sender)
	case n < o.next[sender]:
		o.err = fmt.Errorf("frame %d of sender %d comes behind frame %d", n, sender, o.next[sender]-1)
	}
	o.next[sender] = n + 1
}
