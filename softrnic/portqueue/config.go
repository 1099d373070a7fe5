package portqueue

import (
	"errors"
	"fmt"
	"math/bits"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// Priorities is the number of priorities of a port.
const Priorities = wire.Priorities

// Overhead is what a frame occupies on an Ethernet link besides its bytes: preamble 8, FCS 4 and the
// gap 12 (IEEE 802.3, 4.2 and 4.4).
const Overhead = 24

// Bounds of a Config.
const (
	// MinRate and MaxRate bound the rate of a port in bits per second.
	MinRate, MaxRate = 8_000, 1_000_000_000_000
	// MaxBuffer bounds the bytes of a packet buffer.
	MaxBuffer = 1 << 30
	// MaxWeight bounds the weight of a priority.
	MaxWeight = 100
	// maxFrames bounds the frames in the queues of a port. Further ones are dropped.
	maxFrames = 1 << 16
	// Million is the Pmax of certainty: probabilities are in millionths.
	Million = 1_000_000
)

// RED decides by the length of a queue which packets are marked: none up to KMin, a share that grows
// linearly to PMax at KMax, and all above KMax. The zero value marks none.
type RED struct {
	// KMin and KMax are in bytes, PMax in millionths.
	KMin, KMax, PMax int
	// AtEnqueue: the queue is measured when a packet comes, without this packet. The default is to
	// measure what remains when a packet leaves, so that the mark is news.
	AtEnqueue bool
}

// On reports whether any packet may be marked.
func (r *RED) On() bool { return r.PMax > 0 || r.KMax > 0 }

// Class configures a priority. The zero value is a lossy priority of weight 1 without marks.
type Class struct {
	// Strict: the priority leaves before all that are not strict, and before strict ones with a lower
	// number. Otherwise Weight, 1 to MaxWeight, is its share; 0 means 1.
	Strict bool
	Weight int
	ECN    RED
	// Lossless: pause frames apply to the priority, in both directions.
	Lossless bool
	// XOFF is how many bytes of shared memory the frames of this priority from one port may use. The
	// port's peer is paused then. 0 means a dynamic threshold: AlphaNum/AlphaDen of the free shared
	// memory. For a lossy priority both bound an egress queue, which drops what is more.
	XOFF               int64
	AlphaNum, AlphaDen int64
	// XON is how many bytes below the threshold the port's peer may go on.
	XON int64
	// Headroom is how many bytes are kept for each port for the frames that arrive after the pause.
	Headroom int64
	// Reserve is how many bytes are kept for each port before shared memory is used. Only for lossless
	// priorities.
	Reserve int64
}

// Watchdog finds priorities that a peer pauses for too long; Detect 0 means that there is none.
type Watchdog struct {
	// Detect is for how long a priority must be paused without a frame that leaves, even if no frame
	// waits. Restore is how long after the last pause frame the priority works again.
	Detect, Restore time.Duration
	// Forward: the priority ignores pause frames meanwhile. The default is that its frames are dropped,
	// too, so that they do not fill the buffer.
	Forward bool
}

// Config describes the ports of one machine.
type Config struct {
	// Rate is that of each port in bits per second; 0 means that sending takes no time. A quantum of
	// pause frames is 512 bit times of it, of 1 Gb/s without a rate.
	Rate int64
	// Overhead is added to the bytes of each frame when its sending time is computed.
	Overhead int
	// Lateness bounds what a port makes up for when Due is called late: it sends at once what it could
	// have sent since its deadline, but at most so much as it can send in this time. 0: nothing.
	Lateness time.Duration
	// Wake is how long Due may leave frames that could go: so Due sends several at once, and is called
	// less often. It applies to ports with a rate, and not to pause frames. Lateness should be longer.
	Wake time.Duration
	// Seed decides the draws of RED.
	Seed    uint64
	Classes [Priorities]Class
	// DSCP has the priority for each code point. Frames that are not RoCEv2 have priority 0.
	DSCP [64]uint8
	// Buffer is the memory for queued frames in bytes; required. Own is the part for frames that came
	// in at no port: those that a switch program makes, or has held. Those frames never cause a pause.
	Buffer, Own int64
	// Quanta is the time of a pause frame that this machine sends; 0 means 65535. It sends the next one
	// after half of the time.
	Quanta uint16
	// Watchdog applies to each port and lossless priority.
	Watchdog Watchdog
	// MAC is the source address of pause frames.
	MAC wire.MAC
}

// Validate returns an error that names the field that is wrong.
func (c *Config) Validate() error {
	switch {
	case c.Rate != 0 && (c.Rate < MinRate || c.Rate > MaxRate):
		return fmt.Errorf("portqueue: rate %d is not between 8kbit and 1Tbit", c.Rate)
	case c.Overhead < 0 || c.Overhead > 1024 || c.Lateness < 0 || c.Wake < 0 || c.Watchdog.Detect < 0 || c.Watchdog.Restore < 0:
		return errors.New("portqueue: overhead, lateness, wake and the times of the watchdog must not be negative")
	case c.Buffer <= 0 || c.Buffer > MaxBuffer || c.Own < 0 || c.Own > c.Buffer:
		return fmt.Errorf("portqueue: a buffer of %d bytes, %d of them its own, is not between 1 byte and 1 GiB", c.Buffer, c.Own)
	}
	for i := range c.Classes {
		if err := c.Classes[i].validate(); err != nil {
			return fmt.Errorf("portqueue: priority %d: %w", i, err)
		}
	}
	for _, p := range c.DSCP {
		if p >= Priorities {
			return fmt.Errorf("portqueue: a code point has priority %d; use 0 to 7", p)
		}
	}
	return nil
}

func (c *Class) validate() error {
	switch r := &c.ECN; {
	case c.Weight < 0 || c.Weight > MaxWeight:
		return fmt.Errorf("weight %d is not between 1 and %d", c.Weight, MaxWeight)
	case r.KMin < 0 || r.KMax < r.KMin || r.KMax > MaxBuffer || r.PMax < 0 || r.PMax > Million:
		return fmt.Errorf("marks between %d and %d bytes with %d millionths: want 0 <= kmin <= kmax <= 1 GiB, and at most 1000000", r.KMin, r.KMax, r.PMax)
	case c.XOFF < 0 || c.XON < 0 || c.Headroom < 0 || c.Reserve < 0 || max(c.XOFF, c.XON, c.Headroom, c.Reserve) > MaxBuffer:
		return errors.New("xoff, xon, headroom and reserve are between 0 and 1 GiB")
	case c.AlphaNum < 0 || c.AlphaDen < 0 || c.AlphaNum > maxAlpha || c.AlphaDen > maxAlpha:
		return fmt.Errorf("alpha %d/%d: want numbers up to %d", c.AlphaNum, c.AlphaDen, maxAlpha)
	}
	return nil
}

// maxAlpha bounds the two parts of a dynamic threshold's factor.
const maxAlpha = 1024

// MinBuffer returns the bytes that a buffer for ports must have: those that no port shares with
// another.
func (c *Config) MinBuffer(ports int) int64 {
	n := c.Own
	for i := range c.Classes {
		if k := &c.Classes[i]; k.Lossless {
			n += int64(ports) * (k.Reserve + k.Headroom)
		}
	}
	return n
}

// Quantum returns how long pause frames of so many quanta stop a priority.
func (c *Config) Quantum(quanta uint16) time.Duration {
	rate := c.Rate
	if rate == 0 {
		rate = 1e9
	}
	const bitTimes = 512
	return time.Duration(int64(quanta) * bitTimes * int64(time.Second) / rate)
}

// Headroom returns the bytes that arrive after a pause frame was decided on: those that a link of this
// rate holds in both directions, what the peer sends until it reacts, and a longest frame at either
// end that has begun to leave (IEEE 802.1Qbb, annex O; facts of an emulated link are its delay and how
// late its peer runs).
func Headroom(rate int64, delay, reaction time.Duration, longest int) int64 {
	const bitsPerByte = 8
	hi, lo := bits.Mul64(uint64(rate), uint64(2*delay+reaction))
	bytes, _ := bits.Div64(hi, lo, bitsPerByte*uint64(time.Second)) // at most MaxRate and some seconds: no overflow
	return int64(bytes) + 1 + 2*int64(longest)
}
