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

// Link is each link of the rack.
type Link struct {
	// Rate is in bits a second; 0: no limit.
	Rate int64
	// Delay is from one end to the other, with what MAC and PHY of both take. 0: free.
	Delay time.Duration
	// Overhead is the number of bytes that a frame occupies on the wire in addition to the bytes
	// from destination MAC to payload: preamble, check sequence, gap.
	Overhead int
}

// Switch is the box between the links.
type Switch struct {
	// Delay is from the last bit in to the first bit out.
	Delay time.Duration
	// Cores work on the packets of RoCE; all packets to one queue pair are the work of one core. 0:
	// the switch keeps up with its links whatever it does.
	Cores int
	// Forward and Rewrite are packets a second of one core: of those that leave as they came, and
	// of those that the program changed or made.
	Forward, Rewrite Rate
}

// Client is a thread of an application, which has a processor to itself.
type Client struct {
	// Post is the thread's time for each work request it posts, Poll for each call of Poll.
	Post, Poll time.Duration
	// Get and Put are the thread's time for what the program of a key-value store does in one
	// operation, besides posting and polling.
	Get, Put time.Duration
}

// Metadata is the program of a store's metadata server.
type Metadata struct {
	// Call is the time of a thread for a request of a client, Threads how many threads work on
	// requests; 0: 1.
	Call    time.Duration
	Threads int
}

// Each is the mean time between the requests that busy threads complete.
func (m *Metadata) Each() time.Duration { return m.Call / time.Duration(max(1, m.Threads)) }

// NIC is a network adapter.
type NIC struct {
	// Doorbell is the time from a post until the NIC has the work request; packets that the NIC
	// sends later, after an answer or a timer, do not pay it. Completion is the time from an
	// answer's arrival until the application can see the completion.
	Doorbell, Completion time.Duration
	Send, Write          Verb
	Read, Atomic         Verb
}

// Verb has the costs of one packet of a request; for a READ, of the request packet. The costs of
// answers are included.
type Verb struct {
	// Total is of all queue pairs of a NIC together, at the side that asks and at the side that
	// answers.
	Total Rate
	// QP is of one queue pair at the side that answers, by where the memory is.
	QP Place[Rate]
	// Word, of atomics only, is of all on one 64-bit word. Other accesses to the word wait.
	Word Place[Rate]
	// Latency is from the beginning of the work at the side that answers until it takes effect.
	Latency Place[time.Duration]
}

// Place has a value for memory of the host, behind PCIe, and one for memory on the NIC.
type Place[T any] struct{ Host, Device T }

func (p *Place[T]) of(device bool) T {
	if device {
		return p.Device
	}
	return p.Host
}

// Bounds of what Validate lets through.
const (
	maxLatency  = time.Second
	minRate     = 1
	maxRate     = 1_000_000_000_000
	maxOverhead = 1000
	// MaxCores bounds the cores of a switch.
	MaxCores = 4096
)

// Validate reports a figure that is out of bounds.
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
	if n := m.Metadata.Threads; n < 0 || n > MaxCores {
		return fmt.Errorf("cost: %d threads of the metadata server: want 0 to %d", n, MaxCores)
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

// AtLineRate is the model with a switch that keeps up whatever it does, as figures of NICs were
// measured.
func (m *Model) AtLineRate() *Model {
	c := *m
	c.Switch.Cores = 0
	return &c
}

// BackToBack is the model for two NICs joined by one link instead of two and a switch, as some
// measurements have been made: the switch is free and each of the rack's two links is half of the
// link.
func (m *Model) BackToBack() *Model {
	c := *m
	c.Switch = Switch{}
	c.Link.Delay /= 2
	return &c
}
