package device

import (
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/engine"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// Second is another NIC at the port of a device, with another protocol than RoCEv2 (package
// onerma/nic). It is a state machine like the engine. The device has exclusive use of both while it
// calls one of them.
type Second interface {
	// Takes reports whether a received frame is for the second NIC. Such a frame does not reach the
	// engine.
	Takes(f *packetio.Frame) bool
	// Frame, Tick and Deadline are those of a state machine; see the package engine. Frame gets one
	// packet: the device splits super-frames. EndBatch is called after the packets of a receive
	// batch. Frame and EndBatch may also be called after Down, and do nothing then.
	Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch)
	EndBatch(now clock.Time, out *packetio.Batch)
	Tick(now clock.Time, out *packetio.Batch)
	Deadline() clock.Time
	// Activity returns a number that changes when a condition may have become true for which
	// SecondDriver.Await waits.
	Activity() uint64
	// Down is called when the device ends or its port has failed.
	Down()
}

// secondNIC holds the second NIC of a device. Without one, nic is nil, the methods do nothing, and
// endBatch is not called.
type secondNIC struct {
	nic   Second
	noted uint64 // the NIC's Activity when changed was last called
	ended bool   // Down was called
	// segments splits super-frames.
	segments packetio.Segments
	// busy: the NIC has got a packet since the last call of endBatch.
	busy bool
}

func (s *secondNIC) takes(f *packetio.Frame) bool { return s.nic != nil && s.nic.Takes(f) }

func (s *secondNIC) tick(now clock.Time, out *packetio.Batch) {
	if s.nic != nil && s.nic.Deadline() <= now {
		s.nic.Tick(now, out)
	}
}

// toSecond passes a frame to the second NIC. The answers to one super-frame can be long: 128
// requests for 4 KiB each are answered with 512 KiB. So toSecond sends answers before it has passed
// all packets. Because sending takes time, each packet is passed with the present time and not with
// the time of the receive call. With the older time, the NIC could write data to memory after the
// operation that reads them has timed out.
func (c *core) toSecond(f packetio.Frame) {
	s := &c.second
	s.busy = true
	now := c.clock.Now()
	pass := func(b []byte) {
		s.nic.Frame(now, 0, packetio.Frame{Data: b, Port: f.Port}, &c.out)
		if many(&c.out) {
			c.flush()
			now = c.clock.Now()
		}
	}
	if f.SegSize == 0 {
		pass(f.Data)
		return
	}
	for i := range s.segments.Open(f) {
		pass(s.segments.Packet(i))
	}
}

// endBatch ends a receive batch that had packets for the second NIC.
func (s *secondNIC) endBatch(now clock.Time, out *packetio.Batch) {
	s.busy = false
	s.nic.EndBatch(now, out)
}

// changed reports whether the NIC was active since the last call.
func (s *secondNIC) changed() bool {
	if s.nic == nil || s.nic.Activity() == s.noted {
		return false
	}
	s.noted = s.nic.Activity()
	return true
}

func (s *secondNIC) down() {
	if s.nic != nil && !s.ended {
		s.ended = true
		s.nic.Down()
	}
}

// SecondDriver gives programs of this process access to the second NIC of a device.
type SecondDriver struct {
	core  *core
	turns *turns
}

func (d *Device) SecondDriver() SecondDriver { return SecondDriver{&d.core, &d.turns} }

// Enter gives the caller exclusive use of the second NIC until Leave, and returns the time. The
// caller must not block meanwhile.
func (s SecondDriver) Enter() clock.Time { return s.core.enter() }

// Leave ends the exclusive use that Enter has given, after the second NIC has done what is due.
func (s SecondDriver) Leave() {
	c := s.core
	defer c.leaveSafely()
	c.second.tick(c.entered, &c.out)
	if c.second.changed() {
		c.e.Events.Notify()
	}
}

// Await blocks until ready returns true, or the deadline has come (verbs.ErrTimeout), or the device
// is closed (verbs.ErrClosed). The device calls ready with exclusive use of the second NIC.
func (s SecondDriver) Await(ready func() bool, deadline clock.Time) error {
	return s.turns.await(readyFunc(ready), deadline)
}

func (s SecondDriver) Now() clock.Time { return s.core.clock.Now() }

// readyFunc is a condition of the second NIC.
type readyFunc func() bool

func (f readyFunc) Ready(*engine.Engine) bool { return f() }
