package simnet

import (
	"fmt"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// slow is a Timing. The first byte of a frame is how many nanoseconds it takes to arrive, the
// second how many it takes to leave, the third, if there is one, how many it is stalled. It logs the cause of each frame that leaves.
type slow struct{ log []string }

func (s *slow) Begin(now clock.Time, _ int, frame []byte) clock.Time {
	if len(frame) > 2 {
		now += clock.Time(frame[2])
	}
	return now
}

func (s *slow) Arrive(now clock.Time, _ int, frame []byte) clock.Time {
	return now + clock.Time(frame[0])
}

func (s *slow) Depart(now clock.Time, _ int, frame []byte, c Cause) clock.Time {
	s.log = append(s.log, fmt.Sprintf("%x of %x %v", frame, c.Frame, c.Step))
	return now + clock.Time(frame[1])
}

func TestTiming(t *testing.T) {
	n, a, b, l := pair(Config{}, LinkConfig{Name: "l", Delay: 100})
	b.left, b.at = 2, 1000
	var ta, tb slow
	n.SetTiming(0, &ta)
	n.SetTiming(1, &tb)
	sendFrom(n, 0, []byte{50, 7}, []byte{10, 0}, []byte{0, 0})
	if err := n.RunUntil(900); err != nil {
		t.Fatal(err)
	}
	// The first frame leaves at 7 ns and arrives at 157 ns; the second takes less time for both.
	if want := []string{"100ns:0:0000", "110ns:0:0a00", "157ns:0:3207"}; !slices.Equal(b.log, want) {
		t.Errorf("b was handed %v, want %v", b.log, want)
	}
	if want := []string{"200ns:0:0000", "220ns:0:0a00"}; !slices.Equal(a.log, want) {
		t.Errorf("a was handed %v, want %v", a.log, want)
	}
	if want := []string{"3207 of  true", "0a00 of  true", "0000 of  true"}; !slices.Equal(ta.log, want) {
		t.Errorf("a made %q, want %q", ta.log, want)
	}
	if want := []string{"0000 of 0000 false", "0a00 of 0a00 false"}; !slices.Equal(tb.log, want) {
		t.Errorf("b made %q, want %q", tb.log, want)
	}
	if s := l.Stats(fault.Up); s.Sent != 3 || s.Delivered != 3 || n.nodes[0].held != 0 || n.nodes[1].held != 0 {
		t.Errorf("%+v, %d and %d frames are held", s, n.nodes[0].held, n.nodes[1].held)
	}
}

// A frame that stalls in a node is overtaken there, and works on from when it begins.
func TestStalledFrame(t *testing.T) {
	n, _, b, _ := pair(Config{}, LinkConfig{Name: "l", Delay: 100})
	n.SetTiming(1, new(slow))
	sendFrom(n, 0, []byte{5, 0, 40}, []byte{7, 0, 0}, []byte{0, 0, 6})
	if err := n.RunUntil(900); err != nil {
		t.Fatal(err)
	}
	if want := []string{"106ns:0:000006", "107ns:0:070000", "145ns:0:050028"}; !slices.Equal(b.log, want) {
		t.Errorf("b was handed %v, want %v", b.log, want)
	}
	if n.nodes[1].held != 0 {
		t.Errorf("%d frames are held", n.nodes[1].held)
	}
}

// Frames inside a node that is switched off are lost and counted.
func TestFramesInsideANodeThatIsOff(t *testing.T) {
	n, _, b, l := pair(Config{}, LinkConfig{Name: "l", Delay: 100})
	n.SetTiming(0, new(slow))
	n.SetTiming(1, new(slow))
	sendFrom(n, 0, []byte{50, 0}, []byte{0, 90})
	n.At(120, func() { n.SetUp(1, false) })
	n.At(60, func() { n.SetUp(0, false) })
	if err := n.RunUntil(1000); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(fault.Up); s.LostDown != 2 || len(b.log) != 0 {
		t.Errorf("%+v, b was handed %v; want one frame lost in each node", s, b.log)
	}
}

func TestFramesInsideANodeAreBounded(t *testing.T) {
	n, a, b, l := pair(Config{}, LinkConfig{Name: "l"})
	n.SetTiming(0, new(slow))
	n.SetTiming(1, new(slow))
	n.nodes[0].held, n.nodes[1].held = maxHeld, maxHeld-1
	sendFrom(n, 0, []byte{0, 1})
	sendFrom(n, 0, []byte{1, 0}, []byte{1, 0})
	if err := n.RunUntil(1000); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(fault.Up); s.LostQueue != 2 || len(b.log) != 1 || len(a.log) != 0 {
		t.Errorf("%+v, %d frames were handed over", s, len(b.log))
	}
}

// With an overhead, sending times are exact in the long run: 1000 frames of 78 bytes, and 23 more
// each, at 100 Gbit/s.
func TestOverheadAndFractions(t *testing.T) {
	n, _, b, _ := pair(Config{}, LinkConfig{Name: "l", Rate: 100_000_000_000, Overhead: 23, Queue: 2000})
	frames := make([][]byte, 1000)
	for i := range frames {
		frames[i] = make([]byte, 78)
	}
	sendFrom(n, 0, frames...)
	if err := n.RunUntil(1_000_000); err != nil {
		t.Fatal(err)
	}
	// A frame with its overhead has 101 bytes and takes 8.08 ns.
	if last := b.log[len(b.log)-1]; len(b.log) != 1000 || last[:7] != "8.08µs:"[:7] {
		t.Errorf("the last of %d frames arrived at %s, want 8.08µs", len(b.log), last[:8])
	}
}
