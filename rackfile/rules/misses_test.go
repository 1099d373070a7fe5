package rules

import (
	"testing"
	"time"
)

// A printed rule is parsed to the same rule, in words and in a rack file. misses is allowed in
// rules whose words the switch knows.
func TestMisses(t *testing.T) {
	for _, misses := range []string{"switch", "wait", "wait:5ms"} {
		r := parse(t, "server=ms0 action=atomics misses="+misses)[0]
		if again, err := Parse(r.String()); err != nil || again.Misses != r.Misses || again.MissTime != r.MissTime {
			t.Errorf("%s: %v, %v", r, again, err)
		}
		if r.ID = "a"; r.Validate() != nil {
			t.Errorf("%s: %v", r, r.Validate())
		}
	}
	if got := (&Rule{}).MissPatience(); got != time.Millisecond {
		t.Errorf("a CAS waits for %v", got)
	}
	for _, text := range []string{
		"id=a server=ms0 action=move misses=wait", "id=a server=ms0 action=atomics mode=published misses=switch", "id=a server=ms0 action=steer misses=switch",
	} {
		if r := parse(t, text)[0]; r.Validate() == nil {
			t.Errorf("%s is accepted", text)
		}
	}
	for _, r := range []Rule{
		{ID: "a", Server: serverA, Action: Atomics, Misses: 9},
		{ID: "a", Server: serverA, Action: Atomics, MissTime: time.Second},
		{ID: "a", Server: serverA, Action: Atomics, Misses: AnswerWait, MissTime: time.Hour},
	} {
		if r.Validate() == nil {
			t.Errorf("%+v is accepted", r)
		}
	}
}
