package portqueue

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// slot has a queued frame. Its memory is used again.
type slot struct {
	frame packetio.Frame // Data is in buf
	buf   []byte
	note  string // what captures say of the frame
	in    int    // the port at which it came in; -1: none
	mark  bool   // RED has marked it when it came
	next  int32  // the slot behind it in its queue, or in the list of free slots; -1: none
}

// keepBuf bounds the memory of a free slot.
const keepBuf = 16 << 10

// queue is a priority of a port.
type queue struct {
	first, last int32 // slots; -1: empty
	frames      int
	bytes       int64
	deficit     int64      // of deficit round robin
	until       clock.Time // end of the pause; not paused if it has passed
	since       clock.Time // when the present pause began
	idle        clock.Time // when the priority was paused, or when the last frame left since
	storm       bool       // the watchdog has found a storm
	heard       clock.Time // the last frame that paused the priority
	drawn       uint64     // draws of RED
	stats       Stats
}

func (q *queue) paused(now clock.Time) bool { return q.until > now && !q.storm }

// Stats counts what has happened to a priority of a port. The names of the pause counters are those of
// the mlx5 driver, whose `rx` means pause frames that the port has got.
type Stats struct {
	TxPackets uint64 `json:"tx_packets"`
	TxBytes   uint64 `json:"tx_bytes"`
	Peak      int64  `json:"peak"`   // longest queue in bytes
	Marked    uint64 `json:"marked"` // packets that got CE here
	// Dropped counts frames that found no memory; Discarded those that the watchdog dropped.
	Dropped   uint64 `json:"dropped"`
	Discarded uint64 `json:"discarded"`
	// HeadroomPeak is the most headroom that frames from this port have used, in bytes.
	HeadroomPeak int64  `json:"headroom_peak"`
	RxPause      uint64 `json:"rx_pause"`
	RxDuration   int64  `json:"rx_pause_duration"` // microseconds
	RxTransition uint64 `json:"rx_pause_transition"`
	TxPause      uint64 `json:"tx_pause"`
	TxDuration   int64  `json:"tx_pause_duration"` // microseconds
	TxTransition uint64 `json:"tx_pause_transition"`
	Storms       uint64 `json:"tx_pause_storm_error_events"` // found by the watchdog
}

// port is the egress of a port.
type port struct {
	queues [Priorities]queue
	slots  []slot
	spare  int32 // list of free slots
	frames int
	free   clock.Time // when the line has sent what it was given
	carry  int64      // picoseconds that the line is free later than the field free says
	ready  clock.Time // since when, or from when on, a frame may leave if the line is free; Never: none may
	served clock.Time // when frames left last
	cursor int        // priority that deficit round robin visits
	begun  bool       // it has got its quantum in this visit
	// Towards the peer: xoff has the priorities that this port has paused at the peer, announce those
	// whose state the peer has not been told. refresh is when the pauses are sent again.
	xoff, announce uint8
	refresh        clock.Time
	paused         [Priorities]clock.Time // since when this port pauses the peer
}

func (p *port) reset() {
	p.spare, p.refresh, p.ready = -1, clock.Never, clock.Never
	for i := range p.queues {
		p.queues[i].first, p.queues[i].last = -1, -1
	}
}

// take returns a free slot; -1: there is none.
func (p *port) take() int32 {
	if i := p.spare; i >= 0 {
		p.spare = p.slots[i].next
		return i
	}
	if len(p.slots) == maxFrames {
		return -1
	}
	p.slots = append(p.slots, slot{})
	return int32(len(p.slots) - 1)
}

// push puts a filled slot at the end of queue q.
func (p *port) push(q *queue, i int32) {
	s := &p.slots[i]
	s.frame.Data, s.next = s.buf, -1
	if q.last < 0 {
		q.first = i
	} else {
		p.slots[q.last].next = i
	}
	q.last = i
	q.frames++
	p.frames++
	q.bytes += int64(len(s.buf))
	q.stats.Peak = max(q.stats.Peak, q.bytes)
}

// pop removes the first slot of queue q. Its frame stays valid until give.
func (p *port) pop(q *queue) *slot {
	s := &p.slots[q.first]
	q.first = s.next
	if q.first < 0 {
		q.last = -1
	}
	q.frames--
	p.frames--
	q.bytes -= int64(len(s.buf))
	return s
}

// give frees slot i.
func (p *port) give(i int32) {
	s := &p.slots[i]
	if cap(s.buf) > keepBuf {
		s.buf = nil
	}
	s.frame, s.note, s.next = packetio.Frame{}, "", p.spare
	p.spare = i
}

// quantumBytes is what a priority of weight 1 may send in a visit of deficit round robin.
const quantumBytes = 512

// choose returns the priority whose first frame leaves next; -1: no frame may leave.
func (p *port) choose(now clock.Time, classes *[Priorities]Class) int {
	weighted := false
	for i := Priorities - 1; i >= 0; i-- {
		q := &p.queues[i]
		if q.frames == 0 || q.paused(now) {
			continue
		}
		if classes[i].Strict {
			return i
		}
		weighted = true
	}
	for weighted {
		q := &p.queues[p.cursor]
		if !classes[p.cursor].Strict && q.frames > 0 && !q.paused(now) {
			if !p.begun {
				p.begun = true
				q.deficit += int64(max(1, classes[p.cursor].Weight)) * quantumBytes
			}
			if n := int64(len(p.slots[q.first].buf)); q.deficit >= n {
				q.deficit -= n
				return p.cursor
			}
		} else {
			q.deficit = 0
		}
		p.cursor, p.begun = (p.cursor+1)%Priorities, false
	}
	return -1
}

const picosPerNano = 1000

// occupy makes the line busy for a frame of so many bytes. Its first bit leaves when the line was free and
// the frame was ready, even if that was up to `lateness` before now because Due was called late.
func (p *port) occupy(now clock.Time, bytes int, rate int64, lateness time.Duration) {
	if rate == 0 {
		p.free = now
		return
	}
	if start := max(min(p.ready, now), now.Add(-lateness)); p.free < start {
		p.free, p.carry = start, 0
	}
	const bits, picos = 8, 1_000_000_000_000
	ps := int64(bytes)*bits*(picos/rate) + int64(bytes)*bits*(picos%rate)/rate + p.carry
	p.carry = ps % picosPerNano
	p.free = p.free.Add(time.Duration(ps / picosPerNano))
}

// departure returns when the next frame may leave, clock.Never if none waits. A frame that came now may
// have come since the time `since`.
func (p *port) departure(now, since clock.Time) clock.Time {
	at := clock.Never
	if p.frames > 0 {
		for i := range p.queues {
			q := &p.queues[i]
			switch {
			case q.frames == 0:
			case q.paused(now):
				at = clock.Min(at, q.until)
			default:
				at = now
			}
		}
	}
	switch {
	case at != now:
		p.ready = at
	case p.ready > now:
		p.ready = now
		if since > 0 {
			p.ready = min(now, since)
		}
	}
	if at == clock.Never {
		return at
	}
	return max(p.ready, p.free)
}
