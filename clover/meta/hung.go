package meta

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
)

// A memory service can hang while the NIC of its server serves data. Then the connections to the
// server work, but no client gets a new one, and none is ended. A READ does not show that. So the
// metadata server of a store with copies asks each memory service from time to time, by a request
// that changes nothing. It breaks its own connections to a server whose service has not answered
// for servicePatience (see hangs) while other services have, as breakUnserved does during a change.
// From then on it treats the server as one that does not answer, and the server goes out: its
// copies no longer count.
//
// The metadata server does not do that if all other copies of some node are on servers whose
// services do not answer either, or that are out: a change would wait for these services, and no
// client would work meanwhile. Without the change, the clients that have their connections go on as
// long as nothing else fails.

// servicePause is the time from an answer of a memory service to the next question. leastMissed is
// how many questions in a row must have had no answer before a service counts as one that hangs.
// One is not enough: if the metadata server itself hangs, one question gets no answer in time.
const (
	servicePause = time.Second
	leastMissed  = 2
)

// watched is what the metadata server knows of the memory service of one server.
type watched struct {
	inquiry
	// askAt is when the service is asked next. asked is when it was asked last; 0 means that the
	// answer to that question does not matter any more.
	askAt, asked clock.Time
	// missed is how many of the last questions had no answer, in a row. silent is when the first of
	// these was asked. heard is when the last answered question was asked.
	missed        int
	silent, heard clock.Time
}

// note takes the outcome of the last question: ran is true if the service has answered.
func (w *watched) note(ran bool, now clock.Time) {
	switch {
	case w.asked == 0:
	case ran:
		w.missed, w.heard, w.askAt = 0, w.asked, now.Add(servicePause)
	default:
		if w.missed++; w.missed == 1 {
			w.silent = w.asked
		}
		// A service that does not listen refuses at once. The next question waits nevertheless.
		w.askAt = w.asked.Add(memoryTimeout)
	}
}

// hangs reports whether the service has not answered for servicePatience, and has left at least
// leastMissed questions in a row unanswered.
func (w *watched) hangs(now clock.Time) bool {
	return w.missed >= leastMissed && now >= w.silent.Add(servicePatience)
}

// watchServices asks the memory service of each connected server whose copies count the next
// question, and takes the outcome of the question before. Unless a change of the view is in
// progress, it also breaks the connections to the servers whose services hang (see spared).
func (s *membership) watchServices(now clock.Time) error {
	for i := range s.watched {
		w := &s.watched[i]
		ran, fresh, known := w.take(now)
		if s.mem.memory[i].out || !s.mem.connected(i) { // a new connection needs an answer of the service, so earlier questions do not matter
			w.missed, w.asked = 0, 0
			continue
		}
		// An answer counts even if it is seen late. A missing answer counts only if it is seen
		// early (fresh): otherwise this metadata server may have hung, and the missing answer may
		// be its own fault.
		if known && (ran || fresh) {
			w.note(ran, now)
		}
		if now >= w.askAt && w.begin(s.mem, memoryTimeout, s.mem.cfg.Servers[i]) {
			w.asked = now
		}
	}
	if s.change != nil {
		return nil
	}
	for _, i := range s.spared(now) {
		if err := s.mem.breakWays(i); err != nil {
			return err
		}
	}
	return nil
}

// spared returns the servers whose memory services hang, if the store can go on without them: of
// each node that is not lost, there must be a copy on a server whose service has answered since the
// first of the hung services fell silent.
func (s *membership) spared(now clock.Time) (hung []int) {
	since := clock.Never
	for i := range s.watched {
		if w := &s.watched[i]; w.hangs(now) {
			hung, since = append(hung, i), min(since, w.silent)
		}
	}
	if hung == nil {
		return nil
	}
	for of := range s.mem.memory {
		served := s.mem.isGone(of)
		for _, i := range s.mem.serversOf(of) {
			m, w := &s.mem.memory[i], &s.watched[i]
			served = served || s.mem.connected(i) && !m.out && !m.blank && w.missed == 0 && w.heard >= since
		}
		if !served {
			return nil
		}
	}
	return hung
}
