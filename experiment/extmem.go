package experiment

import (
	"cmp"
	"context"
	"fmt"
	"time"
)

// MemoryUser is the part of a Platform whose switch uses the memory of servers: the packet buffer,
// the lookup table and the state store. Each method returns errors.ErrUnsupported if the platform
// has no such load.
type MemoryUser interface {
	// BufferRate measures how fast frames go to the ring of a packet buffer or come back, or how
	// fast messages of native verbs go. It returns bits per second.
	BufferRate(ctx context.Context, l BufferRate) (float64, error)
	// Incast has hosts send frames to one port at the same time.
	Incast(ctx context.Context, l Incast) (IncastResult, error)
	// Relief has hosts write to one server at the same time.
	Relief(ctx context.Context, l Relief) (ReliefResult, error)
	// Lookups makes one host send packets, which the switch looks up in a table in servers' memory.
	Lookups(ctx context.Context, l Lookups) (LookupsResult, error)
	// Cached makes clients send GETs and writes to key-value servers, with or without a cache of the switch in the
	// memory of other servers.
	Cached(ctx context.Context, l Cached) (CachedResult, error)
	// Counting makes one client send WRITEs, which the switch counts in the memory of a server.
	Counting(ctx context.Context, l Counting) (CountingResult, error)
}

// Directions of BufferRate.
const (
	Store = "store" // frames that the switch WRITEs to the ring; with Native: WRITEs of a client
	Load  = "load"  // frames that come back; native: READs
)

// BufferRate is a load of frames that either go to the ring of a packet buffer on one server, or
// come back from it. They never do both at the same time.
type BufferRate struct {
	// Direction is Store or Load.
	Direction string
	// If Native is true, a client on a host sends messages by verbs, and the switch only forwards
	// them. If it is false, Mode is the mode of the switch's rule.
	Native bool
	Mode   string
	// Bytes is the length of a frame without its check sequence, or of a message.
	Bytes int
	// Entry is the size of an entry of the ring, in bytes. Depth is how many READs are in flight. A
	// Native load uses neither.
	Entry, Depth int
}

func (l BufferRate) label() string {
	if l.Native {
		return fmt.Sprintf("%s, native, messages of %d bytes", l.Direction, l.Bytes)
	}
	return fmt.Sprintf("%s, %s, frames of %d bytes in entries of %d, %d READs in flight", l.Direction, l.Mode, l.Bytes, l.Entry, l.Depth)
}

func (l BufferRate) effort() float64 { return 1 }

func (l BufferRate) measure(ctx context.Context, p Platform) (outcome, error) {
	rate, err := p.BufferRate(ctx, l)
	return outcome{rate: rate, bits: true}, err
}

// Incast is a load of hosts that begin to send frames to one host at the same time, each at the
// rate of its link.
type Incast struct {
	Senders int
	// Bytes is the length of all frames together. Frame is the length of one frame.
	Bytes, Frame int
	// Room is how many frames can wait in the switch. Servers is the number of servers with a ring
	// for frames that find no room; 0 means that they are dropped.
	Room, Servers int
	// Low is the number of frames that wait for the port at which the switch begins to load frames from the
	// ring; 0 means incastLow.
	Low  int
	Mode string // the mode of the switch's rule; without servers there is no rule
}

// incastLow is the usual Low.
const incastLow = 64

// Begin returns Low, or the usual number.
func (l Incast) Begin() int { return cmp.Or(l.Low, incastLow) }

type IncastResult struct {
	// Arrived is how many bytes of frames have arrived. Disorder counts frames that have arrived
	// after a later frame of the same sender.
	Arrived  int
	Disorder int
	// Loss is the time from the start of the senders to the first dropped frame; 0 means that no
	// frame was dropped. Last is the time from their start to the arrival of the last frame.
	Loss, Last time.Duration
	// Peak is the largest number of bytes of frames that were in the switch at a time: frames that
	// waited for the port or the ring, and those that waited for the links to the servers.
	Peak int
	// Held is the mean of the bytes of frames that were in the switch at a time, from the end of the senders
	// to the arrival of the last frame.
	Held float64
}

func (l Incast) label() string {
	if l.Servers == 0 {
		return "incast without a ring"
	}
	return fmt.Sprintf("incast with a ring on %d servers, %s, loading from %d frames on", l.Servers, l.Mode, l.Begin())
}

func (l Incast) effort() float64 { return 10 + float64(l.Servers) }

func (l Incast) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Incast(ctx, l)
	return outcome{incast: &res}, err
}

// Ways in which Lookups finds the entry of a packet.
const (
	LookupNone   = "none"   // the switch only forwards
	LookupCached = "cached" // all entries are in the switch's cache
	LookupRemote = "remote" // the switch has no cache
)

// Lookups is a load of packets from one host. The table entry of a packet makes the switch set the
// packet's DSCP. The host sends the next packet when one has arrived.
type Lookups struct {
	// Where is LookupNone, LookupCached or LookupRemote. Mode is the mode of the rule.
	Where, Mode string
	// If Circle is true, packets wait in the switch for their entry (packets=recirculate).
	Circle bool
	// Bytes is the length of a packet without the check sequence. Window is how many packets are in
	// the network at a time.
	Bytes, Window int
	// Flows is the number of flows, which take turns; each flow has an entry in the table.
	Flows int
	// Servers is the number of servers with the table.
	Servers int
}

type LookupsResult struct {
	// Median is the median of the times from the beginning of a packet at its sender to its end at
	// the receiver.
	Median time.Duration
	// Rate is how many packets have arrived per second on average.
	Rate float64
	// Wrong counts packets that have arrived without the change that their entry prescribes. Lost
	// counts packets that have not arrived.
	Wrong, Lost int
	// Passes is, of a load with Circle, how many passes through the switch, each as long as its delay, are the
	// mean time that a packet waited there for its entry.
	Passes float64
}

func (l Lookups) label() string {
	if l.Where == LookupNone {
		return fmt.Sprintf("forwarding of %d bytes", l.Bytes)
	}
	where := l.Where
	if l.Circle {
		where += " recirculating"
	}
	return fmt.Sprintf("%s lookups, %s, %d bytes, %d servers, %d on their way", where, l.Mode, l.Bytes, l.Servers, l.Window)
}

func (l Lookups) effort() float64 { return float64(max(1, l.Servers)) }

// measure runs the load. If Window is 1, it then sends the same packets through a switch that only
// forwards, and subtracts the median time of this second run (outcome.added).
func (l Lookups) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Lookups(ctx, l)
	if err != nil || l.Window > 1 {
		return outcome{lookups: &res}, err
	}
	plain := l
	plain.Where, plain.Circle = LookupNone, false
	base, err := p.Lookups(ctx, plain)
	return outcome{lookups: &res, added: res.Median - base.Median}, err
}

// Counting is a load of one client that sends WRITEs, which the switch counts in one counter of a
// server.
type Counting struct {
	// Mode is the mode of the rule; "" means that nothing is counted. Depth is how many FETCH_ADDs
	// may be in flight.
	Mode  string
	Depth int
	// Bytes is the length of a WRITE.
	Bytes int
}

// CountingResult is the outcome of Counting. Its rates are averages over the last part of the time
// in which the client sends.
type CountingResult struct {
	// Client is the rate of the client's WRITEs, Adds that of the switch's FETCH_ADDs; both are per
	// second.
	Client, Adds float64
	// Traffic is the rate in bits per second on the link of the server that has the counters, both
	// directions together, including the overhead of frames on the wire.
	Traffic float64
	// Sent is the number of WRITEs in all. Counted is the value of the counter in the server's
	// memory at the end.
	Sent, Counted uint64
}

func (l Counting) label() string {
	if l.Mode == "" {
		return "WRITEs that are not counted"
	}
	return fmt.Sprintf("counting, %s, %d FETCH_ADDs in flight", l.Mode, l.Depth)
}

func (l Counting) effort() float64 { return 2 }

func (l Counting) measure(ctx context.Context, p Platform) (outcome, error) {
	res, err := p.Counting(ctx, l)
	if err != nil || l.Mode == "" {
		return outcome{counting: &res}, err
	}
	plain, err := p.Counting(ctx, Counting{Bytes: l.Bytes})
	return outcome{counting: &res, share: res.Client / max(1, plain.Client)}, err
}
