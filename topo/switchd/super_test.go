package switchd

import (
	"encoding/binary"
	"testing"
	"testing/synctest"

	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

const headers = 14 + 20 + 8

// superFrame is a frame that stands for n packets with consecutive PSNs and IP identifications.
func superFrame(n int) packetio.Frame {
	b := roce(0, 1, wire.RCSendOnly, 0)
	size := len(b) - headers
	for i := 1; i < n; i++ {
		b = append(b, roce(0, 1, wire.RCSendOnly, wire.PSN(i))[headers:]...)
	}
	binary.BigEndian.PutUint16(b[16:], uint16(len(b)-14))
	binary.BigEndian.PutUint16(b[38:], uint16(len(b)-34))
	return packetio.Frame{Data: b, SegSize: size, CsumPartial: true, CsumStart: 34, CsumOffset: 6}
}

// exchange sends one frame from h0 and returns what arrives at h1.
func (b *bench) exchange(f packetio.Frame) []packetio.Frame {
	b.t.Helper()
	batch := packetio.Batch{Frames: []packetio.Frame{f}}
	if _, err := b.hosts[0].Send(&batch); err != nil {
		b.t.Fatal(err)
	}
	synctest.Wait()
	var in, all packetio.Batch
	for {
		n, err := b.hosts[1].Recv(&in)
		if err != nil {
			b.t.Fatal(err)
		}
		if n == 0 {
			return all.Frames
		}
		for _, f := range in.Frames {
			all.Copy(f)
		}
	}
}

// whole configures h1 to receive super-frames whole.
func whole(c *Config) { c.Links[1].GSO = true }

// A host that takes single packets only gets each packet of a super-frame as a frame of its own.
func TestSuperFrameToSinglePackets(t *testing.T) {
	onBench(t, nil, func(b *bench) {
		b.know()
		got := b.exchange(superFrame(5))
		if len(got) != 5 {
			t.Fatalf("%d frames, want 5", len(got))
		}
		var f wire.Frame
		for i, g := range got {
			if err := wire.ParseFrame(g.Data, &f); err != nil || !wire.CheckICRC(g.Data) || g.SegSize != 0 || int(f.BTH.PSN) != i {
				t.Errorf("packet %d: %+v, %v", i, f.BTH, err)
			}
		}
	})
}

// Without faults a super-frame passes unsplit; a fault drops one of its packets, and the others
// arrive as complete packets.
func TestSuperFrames(t *testing.T) {
	onBench(t, whole, func(b *bench) {
		b.know()
		f := superFrame(5)
		got := b.exchange(f)
		if len(got) != 1 || got[0].SegSize != f.SegSize || !got[0].CsumPartial || len(got[0].Data) != len(f.Data) {
			t.Errorf("whole: %d frames, %+v", len(got), got)
		}
		for _, dir := range []fault.Dir{fault.Up, fault.Down} {
			psn, link := wire.PSN(2), "h0"
			if dir == fault.Down {
				link = "h1"
			}
			id := b.inject(fault.Rule{Link: link, Dir: dir, Kind: fault.Loss, Match: fault.Match{PSN: &psn}})
			got = b.exchange(superFrame(5))
			if len(got) != 4 {
				t.Fatalf("%s: %d packets, want 4", dir, len(got))
			}
			for _, f := range got {
				if !wire.CheckICRC(f.Data) || f.SegSize != 0 {
					t.Errorf("%s: a packet of the super-frame is damaged", dir)
				}
			}
			if err := b.faults.RemoveFault(id); err != nil {
				t.Error(err)
			}
		}
		// the last one is the broadcast of know
		if c, _ := b.Counters(); c.Ports[0].RxPackets != 5+4+5+1 {
			t.Errorf("%d packets counted", c.Ports[0].RxPackets)
		}
	})
}

// The checksum of a frame with checksum offload is computed before the frame is corrupted:
// otherwise the receiver would not notice.
func TestCorruptFinishesChecksums(t *testing.T) {
	onBench(t, whole, func(b *bench) {
		b.know()
		b.inject(fault.Rule{Link: "h0", Dir: fault.Up, Kind: fault.Corrupt})
		f := superFrame(1)
		f.SegSize = 0
		got := b.exchange(f)
		if len(got) != 1 || got[0].CsumPartial {
			t.Errorf("got %+v", got)
		}
		tcp := superFrame(3)
		tcp.Data[23] = 6
		tcp.Data[46] = 0x50
		if got = b.exchange(tcp); len(got) != 0 {
			t.Errorf("a corrupted super-frame of TCP left as %d frames", len(got))
		}
	})
}
