package congestion

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Controller decides how fast one queue pair may send. Its methods must be called with times that do
// not decrease. It is pure: the same calls give the same decisions. It must not allocate memory.
//
// A caller may call Tick late, and only when it wants to send: Tick handles all timers that have
// expired, in the order of their times, so that the result is that of calls in time.
type Controller interface {
	// Sent is called for each paced packet that leaves; bytes is the length of its frame.
	Sent(now clock.Time, bytes int)
	// Acked is called when the peer has acknowledged packets.
	Acked(now clock.Time, a Ack)
	// Notified is called for each CNP.
	Notified(now clock.Time)
	// Lost is called when the queue pair begins to retransmit.
	Lost(now clock.Time, l Loss)
	// Tick handles the timers that have expired.
	Tick(now clock.Time)
	// Deadline returns when the next timer expires; clock.Never if none runs. The timers of a queue
	// pair that is not congested do not run.
	Deadline() clock.Time
	// Limit returns the rate in bits a second, and how many packets may be in flight; 0 means no limit.
	Limit() (bitsPerSecond int64, window int)
}

// Ack says what an acknowledgement has shown.
type Ack struct {
	// Packets is the number of the acknowledged packets, Bytes the length of their frames, if all are as
	// long as the path MTU allows.
	Packets, Bytes int
	// RTT is the time from the departure of a packet from the NIC's engine to the arrival of its
	// acknowledgement there, as a NIC with time stamps measures it; 0 means that none was measured. It
	// has the time that the packet waits for the NIC's link, and not that which it waits for its rate.
	// Retransmitted packets are not measured.
	RTT time.Duration
}

// Loss is how a queue pair has learnt that packets were lost.
type Loss uint8

const (
	LossNak     Loss = iota // a NAK, sent or implied
	LossTimeout             // the ACK timer expired
)

// State is what a listing shows of a Controller.
type State struct {
	// Rate is the present rate, Target the rate to which it returns; in bits a second.
	Rate, Target int64
	// Alpha estimates the congestion: 0 none, 1 all packets marked.
	Alpha float64
	// TimeStage and ByteStage count the increases since the last CNP, by the timer and by the byte
	// counter.
	TimeStage, ByteStage uint32
	// Active is true while the rate is below the line rate or Alpha decays.
	Active bool
}

// Shower is implemented by a Controller that a listing can show.
type Shower interface{ State() State }

// Fixed is a Controller with a constant rate that ignores all events. It reads the rate at each call, so
// that a change applies at once.
type Fixed struct{ bitsPerSecond *int64 }

// NewFixed returns the Controller of one queue pair, with a rate in bits a second.
func NewFixed(bitsPerSecond *int64) Fixed { return Fixed{bitsPerSecond} }

func (Fixed) Sent(clock.Time, int)  {}
func (Fixed) Acked(clock.Time, Ack) {}
func (Fixed) Notified(clock.Time)   {}
func (Fixed) Lost(clock.Time, Loss) {}
func (Fixed) Tick(clock.Time)       {}
func (Fixed) Deadline() clock.Time  { return clock.Never }
func (f Fixed) Limit() (int64, int) { return *f.bitsPerSecond, 0 }
func (f Fixed) State() State        { return State{Rate: *f.bitsPerSecond, Target: *f.bitsPerSecond} }
