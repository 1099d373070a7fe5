package paced

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// model has round costs: a frame of 78 bytes occupies a link for 100 ns.
func model() *cost.Model {
	write := cost.Verb{QP: cost.Place[cost.Rate]{Host: 1e6, Device: 1e6}, Latency: cost.Place[time.Duration]{Host: 140, Device: 40}}
	return &cost.Model{
		Link:   cost.Link{Rate: 8_000_000_000, Delay: 125, Overhead: 22},
		Switch: cost.Switch{Delay: 450},
		NIC:    cost.NIC{Doorbell: 700, Completion: 500, Write: write},
	}
}

// frame builds a packet of 78 bytes for a queue pair.
func frame(t *testing.T, o wire.Opcode, qpn wire.QPN, port int) packetio.Frame {
	t.Helper()
	f := &wire.Frame{Packet: wire.Packet{BTH: wire.BTH{Opcode: o, DestQP: qpn}}}
	b := f.AppendTo(nil)
	f.Packet.Payload = make([]byte, 78-len(b))
	if b = f.AppendTo(nil); len(b) != 78 {
		t.Fatalf("a packet of %d bytes, want 78", len(b))
	}
	return packetio.Frame{Data: b, Port: port}
}

// due returns the times at which frames are given out, when Due is called in time.
func due(next func() clock.Time, call func(now clock.Time) int) (at []clock.Time) {
	for next() != clock.Never {
		now := next()
		for range call(now) {
			at = append(at, now)
		}
	}
	return at
}

func equal(t *testing.T, what string, got []clock.Time, want ...clock.Time) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %v, want %v", what, got, want)
	}
	for i := range want {
		if got[i] != want[i] {
			t.Errorf("%s: %v, want %v", what, got, want)
			return
		}
	}
}

func TestNIC(t *testing.T) {
	none := func(uint32, uint64, int) ([]byte, bool) { return nil, false }
	var in, out packetio.Batch
	run := func(n *NIC) (received, sent []clock.Time) {
		for n.Deadline() != clock.Never {
			now := n.Deadline()
			n.Due(now, &in, &out)
			for range in.Frames {
				received = append(received, now)
			}
			for range out.Frames {
				sent = append(sent, now)
			}
			in.Reset()
			out.Reset()
		}
		return received, sent
	}
	n := NewNIC(model(), none, 1)
	n.Arrived(0, frame(t, wire.RCWriteOnly, 1, 0))
	n.Arrived(0, frame(t, wire.RCWriteOnly, 1, 0))
	n.Made(0, frame(t, wire.RCWriteOnly, 2, 0), true)
	n.Made(0, frame(t, wire.RCReadResponseOnly, 3, 0), false)
	received, sent := run(n)
	equal(t, "frames for the NIC", received, 140, 1140) // the queue pair serialises
	equal(t, "frames for the switch", sent, 225, 925)   // link and delay; the posted one also the doorbell

	// A process that gets the processor late loses nothing but the time of the last stage.
	n = NewNIC(model(), none, 1)
	n.Made(0, frame(t, wire.RCWriteOnly, 2, 0), true)
	n.Due(5000, &in, &out)
	if len(out.Frames) != 1 || n.Deadline() != clock.Never {
		t.Errorf("at 5us %d frames have crossed the link, and the next is due at %v", len(out.Frames), n.Deadline())
	}
}

func TestSwitch(t *testing.T) {
	s := NewSwitch(model(), 2)
	var out packetio.Batch
	dropped := 0
	for port := range 2 {
		for range 3 + port {
			if !s.Made(0, frame(t, wire.RCWriteOnly, 1, port), nil) {
				t.Fatal("there is no room for a frame")
			}
		}
	}
	at := due(s.Deadline, func(now clock.Time) int {
		out.Reset()
		s.Due(now, &out, func(f packetio.Frame) {
			if dropped++; f.Port != 1 {
				t.Errorf("port %d drops a frame", f.Port)
			}
		})
		return len(out.Frames)
	})
	equal(t, "frames for the hosts", at, 675, 675, 775, 775, 875, 875)
	if dropped != 1 {
		t.Errorf("%d frames dropped, want 1: two wait while one is sent", dropped)
	}
}

// The number of waiting frames is bounded.
func TestRoom(t *testing.T) {
	s := NewSwitch(model(), 1<<20)
	f := frame(t, wire.RCReadResponseOnly, 1, 0)
	for range MaxHeld {
		s.Made(0, f, nil)
	}
	if s.Made(0, f, nil) {
		t.Error("one more frame found room")
	}
	n := NewNIC(model(), nil, 1)
	for range MaxHeld + 3 {
		n.Made(0, f, false)
	}
	n.Arrived(0, f)
	if got, want := n.Dropped(), (Dropped{Arrived: 1, Made: 3}); got != want {
		t.Errorf("the NIC dropped %+v, want %+v", got, want)
	}
	s = NewSwitch(model(), 1<<20)
	f.Data = make([]byte, MaxHeldBytes/4+1)
	for range 3 {
		s.Made(0, f, nil)
	}
	if s.Made(0, f, nil) {
		t.Error("more bytes found room than may wait")
	}
}

// The frames of a port whose host is gone do not reach the next host of that port.
func TestForget(t *testing.T) {
	s := NewSwitch(model(), 2)
	for i := range 6 {
		s.Made(0, frame(t, wire.RCWriteOnly, 1, i%2), nil)
	}
	var out packetio.Batch
	s.Due(500, &out, func(packetio.Frame) {}) // all are on their links now
	s.Forget(1)
	s.Forget(7)
	s.Made(500, frame(t, wire.RCWriteOnly, 1, 1), nil)
	for s.Deadline() != clock.Never {
		s.Due(s.Deadline(), &out, func(packetio.Frame) { t.Error("a frame finds the queue full") })
	}
	ports := [2]int{}
	for _, f := range out.Frames {
		ports[f.Port]++
	}
	if ports != [2]int{3, 1} {
		t.Errorf("frames for the hosts: %v, want 3 and 1", ports)
	}
}
