package cq

import (
	"errors"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// An event comes with the completion that makes the count full, or at the end of the period that
// begins with the first one; only completions count for which the queue is armed. Each step is a
// push (+, solicited s), a tick, an arming (a, solicited A), and whether the event came (!).
func TestModeration(t *testing.T) {
	const period = 100
	for name, c := range map[string]struct {
		count int
		steps string // the time before each step is 10 times its index
		due   clock.Time
	}{
		"count":                         {3, "a++ +!", clock.Never},
		"period":                        {3, "a++", 110},
		"a second period follows":       {3, "a+++!a+", 160},
		"not armed":                     {3, "+++", clock.Never},
		"others do not count":           {2, "A++s", 130},
		"solicited ones count":          {2, "A+s+s!", clock.Never},
		"armed for more meanwhile":      {2, "As+a+!", clock.Never},
		"at once":                       {1, "a+!", clock.Never},
		"without a count":               {0, "a+!", clock.Never},
		"armed again, events are apart": {2, "a++!a++!", clock.Never},
	} {
		q := queueOf(t, 16)
		s := q.Source()
		if err := q.Moderate(c.count, period); err != nil {
			t.Fatal(err)
		}
		for i, step := range c.steps {
			want := i+1 < len(c.steps) && c.steps[i+1] == '!'
			switch step {
			case 'a', 'A':
				q.Arm(step == 'A')
			case '+', 's':
				s.Push(clock.Time(10*i), &verbs.WC{Solicited: step == 's'})
			case '!':
				continue
			}
			if got := q.Fired(); got != want {
				t.Errorf("%s: step %d: an event %v, want %v", name, i, got, want)
			}
		}
		if due := q.Deadline(); due != c.due {
			t.Errorf("%s: due %v, want %v", name, due, c.due)
		}
		if q.Tick(c.due - 1); q.Fired() {
			t.Errorf("%s: an event before the period ends", name)
		}
		if c.due == clock.Never {
			continue
		}
		if q.Tick(c.due); !q.Fired() || q.Deadline() != clock.Never {
			t.Errorf("%s: no event when the period ends", name)
		}
	}
}

// A change of the moderation raises the event that waits, a queue without one has none, and
// negative values are refused and change nothing.
func TestModerationChanges(t *testing.T) {
	q := queueOf(t, 4)
	s := q.Source()
	for _, bad := range []struct {
		count  int
		period time.Duration
	}{{-1, 0}, {0, -1}} {
		if err := q.Moderate(bad.count, bad.period); !errors.Is(err, verbs.ErrInvalid) {
			t.Errorf("%v: %v", bad, err)
		}
	}
	q.Arm(false)
	if s.Push(0, &verbs.WC{}); !q.Fired() {
		t.Error("the event of a queue without moderation waits")
	}
	if err := q.Moderate(5, time.Hour); err != nil || q.Fired() {
		t.Errorf("an event without a cause, %v", err)
	}
	q.Arm(false)
	s.Push(0, &verbs.WC{})
	if q.Fired() {
		t.Error("the event does not wait")
	}
	if err := q.Moderate(5, 0); err != nil || !q.Fired() || q.Deadline() != clock.Never {
		t.Errorf("the event is lost, %v", err)
	}
	q.Arm(false)
	if s.Push(0, &verbs.WC{}); !q.Fired() {
		t.Error("an event waits for a period of 0")
	}
}
