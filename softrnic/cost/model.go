package cost

import (
	"fmt"
	"time"
)

// Model describes the hardware of a rack. All hosts have the same NIC.
type Model struct {
	Name   string
	Link   Link
	Switch Switch
	Client Client
	// Metadata is the metadata server of a store.
	Metadata Metadata
	NIC      NIC
}

// Link describes every link of the rack.
type Link struct {
	// Rate is in bits per second; 0 means no limit.
	Rate int64
	// Delay is the time from one end to the other, including the MAC and PHY of both ends. 0 means no
	// delay.
	Delay time.Duration
	// Overhead is the number of bytes that a frame occupies on the wire in addition to the bytes
	// from destination MAC to payload: preamble, check sequence, gap.
	Overhead int
}

// Switch has the rates and times of the switch between the links.
type Switch struct {
	// Delay is the time from the last bit of a frame in to its first bit out.
	Delay time.Duration
	// Cores is the number of cores that work on RoCEv2 packets; one core serves all packets to a
	// queue pair. 0 means that the switch never limits the rate.
	Cores int
	// Forward is the rate at which one core forwards packets without change. Rewrite is its rate for
	// packets that the switch program changes or makes.
	Forward, Rewrite Rate
}

// Client has the times of an application thread that has a processor to itself.
type Client struct {
	// Post is the thread's time for each work request it posts, Poll for each call of Poll.
	Post, Poll time.Duration
	// Get and Put are the thread's time for one operation of a key-value store, without posting and
	// polling.
	Get, Put time.Duration
}

// Metadata describes the program that is the metadata server of a store.
type Metadata struct {
	// Call is the time that a thread takes for one request of a client. Threads is the number of
	// threads; 0 means 1.
	Call    time.Duration
	Threads int
}

// Each returns the mean time between two completed requests if all threads are busy.
func (m *Metadata) Each() time.Duration { return m.Call / time.Duration(max(1, m.Threads)) }

// NIC has the rates and times of a network adapter.
type NIC struct {
	// Doorbell is the time from a post until the NIC has the work request. Packets that the NIC sends
	// later, after an answer or a timer, do not need this time. Completion is the time from the
	// arrival of an answer until the application can see the completion.
	Doorbell, Completion time.Duration
	Stall                Stall
	Send, Write          Verb
	Read, Atomic         Verb
	// Ring has the times of entries of send rings.
	Ring Ring
}

// Ring has the times that the NIC takes for an entry of a send ring (package sendring), by the place of
// the ring. Zeros mean the defaults of that package.
type Ring struct {
	// Units is the number of processing units that execute entries. Rings are distributed over them in
	// the order of their making; those of one unit take turns. 0 means that each ring has a unit of its
	// own.
	Units int
	// Enable includes the fetch of the entry that an ENABLE enables.
	Entry, Wait, Enable Place[time.Duration]
}

// Stall is what makes a NIC work on requests in another order than that of their arrival: a request
// waits for something, such as a context that is fetched over PCIe, while those of other queue pairs
// pass. A queue pair's own requests stay in order.
type Stall struct {
	// Share is the probability that a request stalls; 0 means that the NIC works in order of arrival.
	Share float64
	// Mean is the mean of the times of stalls, which are distributed exponentially.
	Mean time.Duration
}

// Verb has the costs of one request packet of an operation. They include the costs of the answer.
type Verb struct {
	// Total is the rate of all queue pairs of a NIC together, as requester and as responder.
	Total Rate
	// QP is the rate of one queue pair as responder, by the place of the memory.
	QP Place[Rate]
	// Word, for atomics only, is the rate of all atomics on one 64-bit word together. Other accesses
	// to the word wait for the atomic.
	Word Place[Rate]
	// Slots, for atomics only: atomics to different words exclude each other, like atomics to one
	// word, if their addresses are equal modulo Slots bytes. 0 means that only atomics to the same
	// word exclude each other.
	Slots int
	// Latency is the time from the beginning of the responder's work until the request takes effect.
	Latency Place[time.Duration]
}

// Place has a value for host memory, behind PCIe, and one for device memory.
type Place[T any] struct{ Host, Device T }

func (p *Place[T]) of(device bool) T {
	if device {
		return p.Device
	}
	return p.Host
}

// Limits that Validate checks.
const (
	maxLatency  = time.Second
	minRate     = 1
	maxRate     = 1_000_000_000_000
	maxOverhead = 1000
	// MaxCores is the largest number of cores of a switch, and of threads of a metadata server.
	MaxCores = 4096
	// MaxUnits is the largest number of processing units of a NIC.
	MaxUnits = 4096
	// MaxSlots is the largest value of Verb.Slots.
	MaxSlots = 1 << 16
)

func (m *Model) Validate() error {
	for _, l := range []struct {
		name string
		v    time.Duration
	}{
		{"link delay", m.Link.Delay},
		{"switch delay", m.Switch.Delay},
		{"client post", m.Client.Post},
		{"client poll", m.Client.Poll},
		{"client get", m.Client.Get},
		{"client put", m.Client.Put},
		{"metadata call", m.Metadata.Call},
		{"doorbell", m.NIC.Doorbell},
		{"completion", m.NIC.Completion},
		{"mean stall", m.NIC.Stall.Mean},
		{"ring entry in host memory", m.NIC.Ring.Entry.Host},
		{"ring entry in device memory", m.NIC.Ring.Entry.Device},
		{"wait in host memory", m.NIC.Ring.Wait.Host},
		{"wait in device memory", m.NIC.Ring.Wait.Device},
		{"enable in host memory", m.NIC.Ring.Enable.Host},
		{"enable in device memory", m.NIC.Ring.Enable.Device},
	} {
		if l.v < 0 || l.v > maxLatency {
			return fmt.Errorf("cost: %s of %v: want 0s to %v", l.name, l.v, maxLatency)
		}
	}
	switch {
	case m.Link.Rate != 0 && (m.Link.Rate < minRate || m.Link.Rate > maxRate):
		return fmt.Errorf("cost: link rate of %d bit/s: want up to %d", m.Link.Rate, int64(maxRate))
	case m.Link.Overhead < 0 || m.Link.Overhead > maxOverhead:
		return fmt.Errorf("cost: link overhead of %d bytes: want 0 to %d", m.Link.Overhead, maxOverhead)
	case m.Switch.Cores < 0 || m.Switch.Cores > MaxCores:
		return fmt.Errorf("cost: %d cores of the switch: want 0 to %d", m.Switch.Cores, MaxCores)
	}
	if s := m.NIC.Stall.Share; !(s >= 0 && s <= 1) {
		return fmt.Errorf("cost: %v as the share of requests that stall: want 0 to 1", s)
	}
	if n := m.Metadata.Threads; n < 0 || n > MaxCores {
		return fmt.Errorf("cost: %d threads of the metadata server: want 0 to %d", n, MaxCores)
	}
	if n := m.NIC.Ring.Units; n < 0 || n > MaxUnits {
		return fmt.Errorf("cost: %d processing units: want 0 to %d", n, MaxUnits)
	}
	if n := m.NIC.Atomic.Slots; n < 0 || n > MaxSlots || n%8 != 0 {
		return fmt.Errorf("cost: slots for atomics of %d bytes: want a multiple of 8, 0 to %d", n, MaxSlots)
	}
	rates := []Rate{m.Switch.Forward, m.Switch.Rewrite}
	for _, v := range []*Verb{&m.NIC.Send, &m.NIC.Write, &m.NIC.Read, &m.NIC.Atomic} {
		rates = append(rates, v.Total, v.QP.Host, v.QP.Device, v.Word.Host, v.Word.Device)
		for _, d := range []time.Duration{v.Latency.Host, v.Latency.Device} {
			if d < 0 || d > maxLatency {
				return fmt.Errorf("cost: latency of %v: want 0s to %v", d, maxLatency)
			}
		}
	}
	for _, r := range rates {
		if r != 0 && (r < minRate || r > maxRate) {
			return fmt.Errorf("cost: rate of %d a second: want up to %d", int64(r), int64(maxRate))
		}
	}
	return nil
}

// AtLineRate returns the model with a switch that never limits the rate, as in measurements of
// NICs.
func (m *Model) AtLineRate() *Model {
	c := *m
	c.Switch.Cores = 0
	return &c
}

// BackToBack returns the model of two NICs that are joined by one link without a switch, as in some
// measurements. The switch costs nothing, and each of the rack's two links has half of the link's
// delay.
func (m *Model) BackToBack() *Model {
	c := *m
	c.Switch = Switch{}
	c.Link.Delay /= 2
	return &c
}

// Of returns the times of a ring, in device memory or in host memory.
func (r *Ring) Of(device bool) (entry, wait, enable time.Duration) {
	return r.Entry.of(device), r.Wait.of(device), r.Enable.of(device)
}

// Rings returns the times of entries of send rings. Those of no model (nil) are the defaults.
func (m *Model) Rings() Ring {
	if m == nil {
		return Ring{}
	}
	return m.NIC.Ring
}
