package pathtrace

import (
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"time"
)

// recording is the traces of a client, a switch with the ports other, c and s, and a server.
type recording struct {
	c, sw, s Trace
	now      int64
}

func newRecording() *recording {
	return &recording{sw: Trace{Ports: []string{"other", "c", "s"}}, now: 1000}
}

func (r *recording) add(t *Trace, after time.Duration, p Point, port int) {
	r.now += int64(after)
	t.Events = append(t.Events, Event{r.now, p, port})
}

// operation records one operation whose stage i takes i+1 times unit; last is the time until the
// next post.
func (r *recording) operation(unit time.Duration) {
	const port, peer = 1, 2
	r.add(&r.c, 0, Posted, 0)
	r.add(&r.c, unit, Sending, 0)
	r.add(&r.sw, 2*unit, Received, port)
	r.c.Events = append(r.c.Events, Event{r.now + 5, Sent, 0}) // it returns after the switch has the packet
	r.add(&r.sw, 3*unit, Sending, peer)
	r.sw.Events = append(r.sw.Events, Event{r.now + 7, Sent, peer})
	r.add(&r.s, 4*unit, Received, 0)
	r.s.Events = append(r.s.Events, Event{r.now + 1, Handled, 0})
	r.add(&r.s, 5*unit, Sending, 0)
	r.s.Events = append(r.s.Events, Event{r.now + 9, Sent, 0})
	r.add(&r.sw, 6*unit, Received, peer)
	r.add(&r.sw, 7*unit, Sending, port)
	r.sw.Events = append(r.sw.Events, Event{r.now + 7, Sent, port})
	r.add(&r.c, 8*unit, Received, 0)
	r.add(&r.c, 9*unit, Handled, 0)
	r.now += int64(10 * unit)
}

func (r *recording) end() { r.add(&r.c, 0, Posted, 0) }

func (r *recording) analyze(t *testing.T) *Breakdown {
	t.Helper()
	b, err := Analyze("c", "s", r.c, r.sw, r.s)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestStagesOfOperations(t *testing.T) {
	r := newRecording()
	for _, unit := range []time.Duration{300, 100, 200} {
		r.operation(unit)
	}
	r.end()
	b := r.analyze(t)
	if b.Operations != 4 || b.Followed != 3 {
		t.Errorf("%d of %d followed, want 3 of 4", b.Followed, b.Operations)
	}
	for i, s := range b.Stages {
		if want := time.Duration(i+1) * 200; s.Median != want {
			t.Errorf("%s: median %d, want %d", s.Name, s.Median, want)
		}
		if strings.ContainsAny(s.Name, "{}") {
			t.Errorf("name %q", s.Name)
		}
	}
	if want := time.Duration(55 * 200); len(b.Stages) != 10 || b.Total.Median != want {
		t.Errorf("%d stages, total %d, want 10 and %d", len(b.Stages), b.Total.Median, want)
	}
	for i, want := range []time.Duration{405, 7, 9} {
		if b.Calls[i].Median != want {
			t.Errorf("send call of %s: %d, want %d", b.Calls[i].Name, b.Calls[i].Median, want)
		}
	}
	var out strings.Builder
	if err := b.WriteText(&out); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"3 of 4 operations followed", "c: post, doorbell, engine", "switch to s: send call", "11.00 us", " 18% #######\n"} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
}

// An operation is not followed that has other packets beside it, is retransmitted, or whose answer
// is lost; the ones before and after it are.
func TestDisturbedOperationsAreLeftOut(t *testing.T) {
	for name, disturb := range map[string]func(r *recording){
		"retransmission": func(r *recording) { r.add(&r.c, 10, Sending, 0) },
		"other packet":   func(r *recording) { r.add(&r.s, 10, Received, 0) },
		"other way":      func(r *recording) { r.add(&r.sw, 10, Received, 2) },
	} {
		r := newRecording()
		r.operation(10)
		r.add(&r.c, 0, Posted, 0)
		r.add(&r.c, 10, Sending, 0)
		disturb(r)
		r.now++
		r.operation(10)
		r.end()
		if b := r.analyze(t); b.Followed != 2 || b.Operations != 4 {
			t.Errorf("%s: %d of %d followed, want 2 of 4", name, b.Followed, b.Operations)
		}
	}
}

// Operations after a ring was full do not count, and the text says that events are missing.
func TestFullRing(t *testing.T) {
	r := newRecording()
	for range 5 {
		r.operation(10)
	}
	r.end()
	r.sw.Events, r.sw.Missed = r.sw.Events[:12], 8 // two operations
	b := r.analyze(t)
	if b.Followed != 1 || b.Operations != 2 || b.Missed != 8 { // the end of the second is not recorded
		t.Errorf("%d of %d followed, %d missed; want 1 of 2, and 8", b.Followed, b.Operations, b.Missed)
	}
	var out strings.Builder
	if err := b.WriteText(&out); err != nil || !strings.Contains(out.String(), "8 events had no room") {
		t.Errorf("%v in\n%s", err, out.String())
	}
}

func TestOtherPortsDoNotDisturb(t *testing.T) {
	r := newRecording()
	r.operation(10)
	for at := int64(1000); at < r.now; at += 30 {
		r.sw.Events = append(r.sw.Events, Event{at, Received, 0}, Event{at, Sending, 0}, Event{at, Sent, 0})
	}
	r.end()
	if b := r.analyze(t); b.Followed != 1 {
		t.Errorf("%d followed, want 1", b.Followed)
	}
}

func TestNothingToFollow(t *testing.T) {
	r := newRecording()
	r.operation(10) // and no next post
	if _, err := Analyze("c", "s", r.c, r.sw, r.s); !errors.Is(err, ErrNoOperation) {
		t.Errorf("without a next post: %v", err)
	}
	if _, err := Analyze("c", "x", r.c, r.sw, r.s); err == nil || !strings.Contains(err.Error(), "no port of c and x") {
		t.Errorf("a server that the switch does not know: %v", err)
	}
	var none *Breakdown
	if err := none.WriteText(nil); err != nil {
		t.Errorf("text of nil: %v", err)
	}
}

func TestRing(t *testing.T) {
	r := NewRing(2)
	if n := testing.AllocsPerRun(100, func() { r.Add(1, Sent, 0) }); n != 0 {
		t.Errorf("Add allocates %v times", n)
	}
	if tr := r.Trace(); len(tr.Events) != 2 || tr.Missed != 99 {
		t.Errorf("%d events and %d missed, want 2 and 99", len(tr.Events), tr.Missed)
	}
	var none *Ring
	if b, err := json.Marshal(none.Trace()); err != nil || string(b) != `{"events":[],"missed":0}` {
		t.Errorf("of no ring: %s, %v", b, err)
	}
	if NewRing(-1).Trace().Missed != 0 || cap(NewRing(1<<30).events) != MaxEvents {
		t.Error("the capacity is not bounded")
	}
}
