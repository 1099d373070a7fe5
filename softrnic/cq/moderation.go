package cq

import (
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// moderation delays the event of an armed queue, so that one event reports several completions.
type moderation struct {
	count  int           // see Moderate
	period time.Duration // see Moderate
	causes int           // number of completions so far that may cause the event being delayed
	due    clock.Time    // latest time of the event; valid if causes > 0
}

// Moderate delays the events of the queue. An event is raised when count completions that may cause
// it were pushed, or when period has passed since the first of them. A count below 2 or a period of
// 0 turns moderation off. If an event is being delayed now, Moderate raises it at once.
func (c *CQ) Moderate(count int, period time.Duration) error {
	if count < 0 || period < 0 {
		return verbs.Errorf("moderate cq", verbs.ErrInvalid, "%d completions, %v", count, period)
	}
	c.moderation.count, c.moderation.period = count, period
	if c.causes > 0 {
		c.raise()
	}
	return nil
}

// Deadline returns the time at which Tick raises the delayed event. It is clock.Never if no event
// is delayed.
func (c *CQ) Deadline() clock.Time {
	if c.causes == 0 {
		return clock.Never
	}
	return c.due
}

// Tick raises a delayed event that is due.
func (c *CQ) Tick(now clock.Time) {
	if c.Deadline() <= now {
		c.raise()
	}
}

// notice raises or delays the event of the queue, which is armed, if wc may cause it. If the queue
// is armed for solicited completions, a failed one may cause it, too (IBTA 11.4.2).
func (c *CQ) notice(now clock.Time, wc *verbs.WC) {
	if c.armed == armedAny || wc.Solicited || wc.Status != verbs.Success {
		c.cause(now)
	}
}

// cause counts a completion that may cause the event for which the queue is armed.
func (c *CQ) cause(now clock.Time) {
	if c.causes++; c.causes == 1 {
		c.due = now.Add(c.period)
	}
	if c.causes >= c.count || c.period == 0 {
		c.raise()
	}
}

func (c *CQ) raise() { c.armed, c.fired, c.causes = unarmed, true, 0 }
