package selective

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// Config describes the recovery of one queue pair.
type Config struct {
	Kind Kind
	// Window is how many packets may be in flight: with RACK those of state Flying, with IRN all from
	// the oldest that is not settled.
	Window int
	// Limit is how many PSNs from the oldest that is not settled the peer and the scoreboard can hold.
	Limit int
	// Low is the shorter retransmission timeout, which IRN uses if fewer than FewPackets packets are in
	// flight, and the shortest time after which RACK probes. High is the longer one of IRN.
	Low, High time.Duration
}

// FewPackets is the number N of IRN: with fewer packets in flight the shorter timeout is used,
// because no later packet may show that one is lost.
const FewPackets = 3

// Constants of RACK (RFC 8985): a quarter of the shortest round trip is the first guess of how much
// packets overtake each other; reoKeep recoveries later a larger guess is given up; dupThresh packets
// that have arrived behind a hole make it lost at once as long as no reordering was seen.
const (
	reoPart   = 4
	reoKeep   = 16
	dupThresh = 3
	// maxBackoff bounds how often the time of probes doubles.
	maxBackoff = 10
)

// Recovery decides which packets of a Board are lost. The caller reports what it sends and what it
// hears, calls Look after each report, and Tick at Deadline; then it sends what NextLost says.
type Recovery struct {
	Board
	cfg Config
	// told is how many PSNs from offset 0 the peer is known to have executed; see Executed. highest is
	// one past the highest offset that is Held or Settled.
	told, highest int

	// IRN: a recovery lasts until all that was sent before it, `until` PSNs, is settled. Holes below
	// `passed` have been sent again in it.
	open          bool
	until, passed int

	timing

	// lossAt is when a packet that may only be late is lost. probeAt is when the timeout or probe is
	// due, backoff how often in succession it was. since is when IRN's timer was started.
	lossAt, probeAt, since clock.Time
	backoff                int

	// urgent: one packet may be sent again though the window is full.
	urgent bool

	// Episodes counts the recoveries, Spurious the packets that were sent again although the first copy
	// arrived.
	Episodes, Spurious uint64
}

// timing is what is known of the times of packets that have arrived.
type timing struct {
	// newest is the newest send time of a packet that has arrived, newestOff its offset, rtt its round
	// trip.
	newest    clock.Time
	newestOff int
	rtt       time.Duration
	// minRTT and srtt are the shortest and the smoothed round trip; 0 before the first.
	minRTT, srtt time.Duration
	// reordered: a packet has arrived behind one that was sent after it. reoMult is the number of
	// reoPart-th of minRTT by which packets may overtake each other, reoLeft the recoveries until it is
	// 1 again.
	reordered bool
	reoMult   int
	reoLeft   int
}

// NewRecovery returns the recovery of a queue pair that has sent nothing.
func NewRecovery(cfg Config) *Recovery {
	return &Recovery{
		Board: *NewBoard(cfg.Limit), cfg: cfg, timing: timing{newest: -1, reoMult: 1}, lossAt: clock.Never, probeAt: clock.Never, since: clock.Never,
	}
}

// Kind returns how this recovery works.
func (r *Recovery) Kind() Kind { return r.cfg.Kind }

// Limit returns Config.Limit.
func (r *Recovery) Limit() int { return r.cfg.Limit }

// Load returns how many packets count for the window.
func (r *Recovery) Load() int {
	if r.cfg.Kind == IRN {
		return r.used
	}
	return r.count[Flying]
}

// MayRepeat reports whether the window lets a lost packet be sent again now. The caller then sends
// one.
func (r *Recovery) MayRepeat() bool {
	may := r.cfg.Kind == IRN || r.urgent || r.Load() < r.cfg.Window
	r.urgent = false
	return may
}

// Room returns how many PSNs may be sent for the first time, as far as the Limit is concerned.
func (r *Recovery) Room() int { return r.cfg.Limit - r.used }

// RTT returns the smoothed round trip; 0 before the first packet has arrived.
func (r *Recovery) RTT() time.Duration { return r.srtt }

// Sending records that packets are sent, as Board.Send does.
func (r *Recovery) Sending(now clock.Time, off, n int, response bool) {
	r.Send(now, off, n, response)
	r.arm(now)
}

// Executed records that the peer has executed all requests below offset end. A request without a
// response is settled by that; the response of another may still come.
func (r *Recovery) Executed(now clock.Time, end int) {
	end = min(end, r.used)
	for first := true; r.told < end; r.told++ {
		s := r.At(r.told)
		if s.Response {
			s.Waits = false
			continue
		}
		// Of the others, the answer that has named them may have been lost: they may have arrived long ago.
		r.arrived(now, r.told, Settle, first)
		first = false
	}
}

// Answered records that the response of offset off has arrived. It returns false if it has arrived
// before.
func (r *Recovery) Answered(now clock.Time, off int) bool {
	if r.At(off).State == Settled {
		return false
	}
	r.arrived(now, off, Settle, true)
	return true
}

// Holds records that the peer holds the request at offset off; fresh: it has just arrived there. Of a
// request with n responses, the time begins again, because the responses cannot be on their way.
func (r *Recovery) Holds(now clock.Time, off, n int, fresh bool) {
	if off < r.told || off+n > r.used {
		return // it is executed
	}
	if !r.At(off).Response {
		r.arrived(now, off, Holding, fresh)
		return
	}
	for i := off; i < off+n; i++ {
		if s := r.At(i); s.State == Flying || s.State == Lost {
			r.learn(now, i, *s, fresh)
			r.On(i, Sent)
			s.Waits, s.At = true, now
		}
	}
}

// Refused records that the peer will not take the request at offset off now, and may have dropped it.
func (r *Recovery) Refused(off, n int) {
	for i := off; i < min(off+n, r.used); i++ {
		r.On(i, Forget)
	}
}

// arrived makes the PSN at offset off Held or Settled; see learn.
func (r *Recovery) arrived(now clock.Time, off int, e Event, fresh bool) {
	s := *r.At(off)
	if old := r.On(off, e); old == Flying || old == Lost {
		r.learn(now, off, s, fresh)
	}
}

// learn takes into account that the packet at offset off, which was s before, has arrived. fresh: it
// has arrived after all that are known to have arrived.
func (r *Recovery) learn(now clock.Time, off int, s Slot, fresh bool) {
	defer func() { r.highest = max(r.highest, off+1) }()
	took := now.Sub(s.At)
	switch {
	case s.Waits:
		return
	case s.Again && took < r.minRTT:
		r.Spurious++ // the copy that was sent first has arrived
		r.reoMult, r.reoLeft = min(r.reoMult+1, 1<<10), reoKeep
		return
	case s.State == Lost: // it was only late, and is not sent again
		r.reoMult, r.reoLeft = min(r.reoMult+1, 1<<10), reoKeep
	}
	if !s.Again {
		r.measure(took)
		r.reordered = r.reordered || fresh && off+1 < r.highest && s.At < r.newest
	}
	if s.At > r.newest || s.At == r.newest && off >= r.newestOff {
		r.newest, r.newestOff, r.rtt = s.At, off, took
	}
	r.backoff = 0
}

// measure takes a round trip into account (RFC 6298, with the gain 1/8).
func (r *timing) measure(took time.Duration) {
	took = max(took, 1)
	if r.srtt == 0 {
		r.srtt, r.minRTT = took, took
	}
	r.srtt += (took - r.srtt) / 8
	r.minRTT = min(r.minRTT, took)
}

// Advance removes the oldest PSN if it is settled.
func (r *Recovery) Advance(now clock.Time) bool {
	if !r.Pop() {
		return false
	}
	r.told, r.highest = max(r.told-1, 0), max(r.highest-1, 0)
	r.until, r.passed, r.newestOff = max(r.until-1, 0), max(r.passed-1, 0), r.newestOff-1
	if r.until == 0 && r.open {
		r.open = false
		if r.reoLeft--; r.reoLeft <= 0 {
			r.reoMult = 1
		}
	}
	r.backoff = 0
	r.since = clock.Never
	r.arm(now)
	return true
}

// Look takes packets for lost after a report, and reports whether a recovery begins.
func (r *Recovery) Look(now clock.Time) bool {
	r.lossAt = clock.Never
	if r.highest == 0 || r.count[Flying] == 0 {
		return false
	}
	before := r.count[Lost]
	if r.cfg.Kind == IRN {
		r.lookByNumber()
	} else {
		r.lookByTime(now)
	}
	return r.count[Lost] > before && r.begin()
}

// begin opens a recovery, and reports whether none was open.
func (r *Recovery) begin() bool {
	if r.open {
		return false
	}
	r.open, r.until = true, r.used
	r.Episodes++
	return true
}

// lookByNumber is the rule of IRN: each hole below the highest PSN that has arrived is lost once.
func (r *Recovery) lookByNumber() {
	from := 0
	if r.open {
		from = r.passed
	}
	for i := from; i < r.highest-1; i++ {
		if s := r.At(i); s.State == Flying && !s.Waits {
			r.On(i, Losing)
		}
	}
	r.passed = max(r.highest-1, from)
}

// lookByTime is the rule of RACK: a packet is lost if one that was sent after it has arrived, and
// more time has passed than packets overtake each other by. Only packets below the highest that has
// arrived can be.
func (r *Recovery) lookByTime(now clock.Time) {
	slack := r.slack()
	for i := 0; i < r.highest; i++ {
		s := r.At(i)
		if s.State != Flying || s.At > r.newest || s.At == r.newest && i > r.newestOff {
			continue
		}
		if due := s.At.Add(r.rtt + slack); due > now {
			r.lossAt = clock.Min(r.lossAt, due)
		} else {
			r.On(i, Losing)
		}
	}
}

// slack returns how long a packet may be late (RFC 8985, RACK_update_reo_wnd).
func (r *Recovery) slack() time.Duration {
	if !r.reordered && (r.open || r.count[Held]+r.count[Settled] >= dupThresh) {
		return 0
	}
	return min(r.minRTT/reoPart*time.Duration(r.reoMult), r.srtt)
}

// NextLost returns the oldest run of lost packets at or behind offset from, at most most packets of
// one kind; n is 0 if there is none.
func (r *Recovery) NextLost(from, most int) (off, n int) {
	if r.count[Lost] == 0 {
		return 0, 0
	}
	for off = from; off < r.used && r.At(off).State != Lost; off++ {
	}
	for off+n < r.used && n < most && r.At(off+n).State == Lost && r.At(off+n).Response == r.At(off).Response {
		n++
	}
	return off, n
}

// Expire takes everything in flight for lost, as after the ACK timeout of a queue pair. What the
// peer holds stays, except for the oldest: the peer would have executed it.
func (r *Recovery) Expire(now clock.Time) {
	for i := range r.used {
		r.On(i, Losing)
		r.At(i).Waits = false
	}
	if r.used > 0 {
		r.On(0, Forget)
	}
	r.begin()
	r.until, r.passed = r.used, max(r.passed, r.highest)
	r.lossAt, r.since = clock.Never, clock.Never
	r.arm(now)
}

// Deadline returns when Tick must be called; clock.Never if nothing is due.
func (r *Recovery) Deadline() clock.Time { return clock.Min(r.lossAt, r.probeAt) }

// Tick handles the deadlines that are due. It reports whether a timeout or probe was due.
func (r *Recovery) Tick(now clock.Time) bool {
	if r.lossAt <= now {
		r.Look(now)
	}
	if r.probeAt > now {
		return false
	}
	r.probeAt = clock.Never
	if r.used == 0 {
		return false
	}
	r.backoff = min(r.backoff+1, maxBackoff)
	if r.cfg.Kind == IRN {
		r.Expire(now)
		return true
	}
	// A probe is the newest packet in flight: what comes back for it shows which others are lost. It
	// leaves even if the window is full.
	r.urgent = true
	for i := r.used - 1; i >= 0; i-- {
		if r.At(i).State == Flying {
			r.On(i, Losing)
			break
		}
	}
	if r.count[Lost] == 0 { // the peer holds all but executes nothing
		r.On(0, Forget)
	}
	r.begin()
	r.arm(now)
	return true
}

// arm sets when the timeout or probe is due.
func (r *Recovery) arm(now clock.Time) {
	switch {
	case r.used == 0:
		r.probeAt, r.since = clock.Never, clock.Never
		return
	case r.cfg.Kind == RACK:
		// As a tail loss probe, two round trips after the newest packet was sent.
		r.probeAt = now.Add(max(2*r.srtt+r.slack(), r.cfg.Low) << r.backoff)
		return
	}
	wait := r.cfg.High
	if r.used < FewPackets {
		wait = r.cfg.Low
	}
	r.since = clock.Min(r.since, now)
	r.probeAt = r.since.Add(wait << r.backoff)
}

// Resume starts the timer again after a Pause, and after something else than Sending and Advance.
func (r *Recovery) Resume(now clock.Time) {
	if r.used > 0 && r.probeAt == clock.Never {
		r.arm(now)
	}
}

// Pause stops all timers, while the queue pair may not send.
func (r *Recovery) Pause() { r.lossAt, r.probeAt, r.since = clock.Never, clock.Never, clock.Never }
