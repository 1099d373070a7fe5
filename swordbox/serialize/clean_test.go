package serialize

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// idleServer returns a rig long after its start, whose flow has no request in flight, and the flow's
// sequencer.
func idleServer(t *testing.T) (*rig, *sequencer) {
	t.Helper()
	r, l, _ := answersTo(t)
	r.run(10 * time.Second)
	return r, l
}

// When requests may be in flight that the machine does not know, no request counts as ended for
// Config.Transit, also behind the time until which faults delay packets. Then those of the flows and
// the shared connections count.
func TestOldRequestsAfterAChange(t *testing.T) {
	for _, delay := range []time.Duration{0, 5 * time.Millisecond} {
		r, l := idleServer(t)
		s := l.s
		s.unsettled = true
		r.sw.Delayed(r.now.Add(delay))
		begin := r.now
		end := begin.Add(delay + r.m.cfg.Transit)
		for _, at := range []clock.Time{begin, end - 1, end} {
			r.do(func(ctx *pipeline.Ctx) {
				later := *ctx
				later.Now = at
				want := at
				if at < end {
					want = 0
				}
				if got := s.cleanSince(&later); got != want || s.unsettled {
					t.Errorf("%v later: all before %v have ended, want %v; unsettled %v", at.Sub(begin), got, want, s.unsettled)
				}
			})
		}
	}
}

// The time before which all requests have ended is computed again after cleanInterval, not earlier.
func TestOldRequestsAreLookedAtAgain(t *testing.T) {
	r, l := idleServer(t)
	s := l.s
	r.do(func(ctx *pipeline.Ctx) {
		later := *ctx
		begin := later.Now
		if s.cleanSince(&later); s.clean != begin || s.cleanAt != begin {
			t.Errorf("%v at %v, want %v", s.clean, s.cleanAt, begin)
		}
		s.clean = 77
		if later.Now = begin + cleanInterval - 1; s.cleanSince(&later) != 77 {
			t.Error("it was computed again too early")
		}
		if later.Now = begin + cleanInterval; s.cleanSince(&later) != later.Now {
			t.Error("it was not computed again")
		}
		s.clean = 0 // not computed yet
		if s.cleanSince(&later) != later.Now {
			t.Error("it was not computed")
		}
	})
}

// A request in flight on a client's connection counts for its own server, while its flow exists, and no
// longer than a NIC retries it.
func TestOldRequestsOfFlows(t *testing.T) {
	for name, c := range map[string]struct {
		change func(l *sequencer)
		ended  bool
	}{
		"in flight":         {func(*sequencer) {}, false},
		"to another server": {func(l *sequencer) { l.s = &server{} }, true},
		"of a closed flow":  {func(l *sequencer) { l.phase = closed }, true},
		"answered":          {func(l *sequencer) { l.conn.acked = l.conn.psns.own }, true},
	} {
		r, l := idleServer(t)
		s := l.s
		l.conn.acked = l.conn.psns.own.Add(-1)
		if !l.isForwarding() {
			t.Error("no request is in flight")
		}
		c.change(l)
		r.do(func(ctx *pipeline.Ctx) {
			want := ctx.Now
			if !c.ended {
				want -= clock.Time(r.m.cfg.Words.Budget)
			}
			if got := s.cleanSince(ctx); got != want {
				t.Errorf("%s: all before %v have ended, want %v", name, got, want)
			}
		})
	}
}

// Requests are in flight on a client's connection that are not acknowledged. While the expected PSN is
// not known, only those count that the sequencer has forwarded.
func TestRequestsInFlightOnAClientsConnection(t *testing.T) {
	for p, want := range map[phase]bool{untouched: false, passing: true, partial: false, partialPassing: true, synced: true, refused: true} {
		l := &sequencer{phase: p}
		l.conn.psns.own, l.conn.acked = 101, 100
		if got := l.isForwarding(); got != want {
			t.Errorf("%v: %v", p, got)
		}
		if l.conn.acked = 101; l.isForwarding() {
			t.Errorf("%v: all are acknowledged", p)
		}
	}
}
