package scenario

import (
	"encoding/binary"
	"math/bits"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// badSwitch is a switch with a bug.
type badSwitch struct {
	simnet.Node
	// in may change a packet before the program gets it, or have it forwarded past the program (asIs).
	in func(port int, f *wire.Frame) (changed, asIs bool)
	// out may change or drop a packet that leaves as a consequence of the packet in. last: no later
	// packet of this output has the same opcode.
	out  func(in, f *wire.Frame, to int, last bool) (changed, lost bool)
	made packetio.Batch
}

// Ports of the switch in a hole's rack, and the last byte of the first client's address.
const (
	holeServerPort = holeClients + 1
	firstHostByte  = 2
)

// Frame calls the switch's Frame, with the bug before or after it.
func (b *badSwitch) Frame(now clock.Time, port int, p packetio.Frame, out *packetio.Batch) {
	var in wire.Frame
	if wire.ParseFrame(p.Data, &in) != nil {
		b.Node.Frame(now, port, p, out)
		return
	}
	if b.in != nil {
		changed, asIs := b.in(port, &in)
		if asIs {
			out.Copy(packetio.Frame{Data: p.Data, Port: int(in.IPv4.Dst[3]) - firstHostByte})
			return
		}
		if changed {
			p.Data = in.AppendTo(nil)
			_ = wire.ParseFrame(p.Data, &in)
		}
	}
	in.Payload = nil
	b.Node.Frame(now, port, p, &b.made)
	for i, m := range b.made.Frames {
		var f wire.Frame
		if b.out != nil && wire.ParseFrame(m.Data, &f) == nil {
			changed, lost := b.out(&in, &f, m.Port, b.last(i, f.BTH.Opcode))
			if lost {
				continue
			}
			if changed {
				m.Data = f.AppendTo(nil)
			}
		}
		out.Copy(m)
	}
	b.made.Reset()
}

func (b *badSwitch) last(i int, op wire.Opcode) bool {
	for _, m := range b.made.Frames[i+1:] {
		var f wire.Frame
		if wire.ParseFrame(m.Data, &f) == nil && f.BTH.Opcode == op {
			return false
		}
	}
	return true
}

// plants are the bugs of the switch that open the holes which both modes close, by number of the
// hole.
func plants() map[int]func() *badSwitch {
	return map[int]func() *badSwitch{
		3: func() *badSwitch { // requests that are not moved keep their PSN
			return &badSwitch{out: func(in, f *wire.Frame, to int, _ bool) (bool, bool) {
				op := f.BTH.Opcode
				stays := to == holeServerPort && in.BTH.Opcode == op && (op == wire.RCWriteFirst || op == wire.RCWriteMiddle || op == wire.RCWriteLast)
				if stays {
					f.BTH.PSN = in.BTH.PSN
				}
				return stays, false
			}}
		},
		9: func() *badSwitch { // an ACK answers only the last atomic that it covers
			return &badSwitch{out: func(_, f *wire.Frame, _ int, last bool) (bool, bool) {
				return false, f.BTH.Opcode == wire.RCAtomicAck && !last
			}}
		},
		11: func() *badSwitch { // WRITEs do not request an acknowledgement
			return &badSwitch{out: func(_, f *wire.Frame, to int, _ bool) (bool, bool) {
				mute := to == holeServerPort && f.BTH.Opcode == wire.RCWriteOnly
				f.BTH.AckReq = f.BTH.AckReq && !mute
				return mute, false
			}}
		},
		13: func() *badSwitch { // a retransmission is taken for a new request
			seen := map[wire.PSN]bool{}
			return &badSwitch{in: func(port int, f *wire.Frame) (bool, bool) {
				if port != 1 || f.BTH.Opcode != wire.RCCmpSwap {
					return false, false
				}
				again := seen[f.BTH.PSN]
				if seen[f.BTH.PSN] = true; again {
					f.BTH.PSN = f.BTH.PSN.Next()
				}
				return again, false
			}}
		},
		24: func() *badSwitch { // the switch ignores datagrams of the connection manager
			return &badSwitch{in: func(_ int, f *wire.Frame) (bool, bool) {
				return false, f.BTH.DestQP == 1 && f.IPv4.Dst[3] >= firstHostByte && f.IPv4.Src[3] >= firstHostByte
			}}
		},
		45: func() *badSwitch { // the bytes of the operand are not swapped
			return &badSwitch{out: func(in, f *wire.Frame, to int, _ bool) (bool, bool) {
				made := to == holeServerPort && in.BTH.Opcode.Is(wire.OpAtomic) && f.BTH.Opcode == wire.RCWriteOnly && len(f.Payload) == 8
				if made {
					binary.NativeEndian.PutUint64(f.Payload, bits.ReverseBytes64(binary.NativeEndian.Uint64(f.Payload)))
				}
				return made, false
			}}
		},
	}
}

// If a hole that both modes close is opened in the switch, its script finds damage.
func TestPlantedHolesAreCaught(t *testing.T) {
	t.Parallel()
	bugs := plants()
	for _, o := range closedHoles {
		o.params, o.action = holeParams, "atomics"
		plant := bugs[o.number]
		if plant == nil {
			t.Errorf("hole %d is planted nowhere", o.number)
			continue
		}
		modes := []string{recordedPublished, recordedHardened}
		if o.number == 24 {
			modes = modes[:1] // mode hardened does not need the connection manager here: it does not move requests of connections that it does not know
		}
		for _, m := range modes {
			e := newEnv(Scenario{}, 1, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
				if name != rackfile.SwitchName {
					return n
				}
				b := plant()
				b.Node = n
				return b
			}})
			h := &holeRun{hole: &o, env: e, mode: m}
			err := h.play()
			if e.finish(); err == nil && len(h.damage) == 0 {
				t.Errorf("hole %d in %s: no damage", o.number, m)
			}
			t.Logf("hole %d, %s: %v %v", o.number, m, err, h.damage)
		}
	}
}
