package simnet

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/packetio"
)

// echo sends the next left frames back on their port, and logs each.
type echo struct {
	left int
	log  []string
	at   clock.Time // its deadline
}

func (e *echo) Frame(now clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	e.log = append(e.log, fmt.Sprintf("%v:%d:%x", now, port, f.Data))
	if e.left > 0 {
		e.left--
		f.Port = port
		out.Copy(f)
	}
}

func (e *echo) Tick(now clock.Time, out *packetio.Batch) {
	e.log = append(e.log, fmt.Sprintf("%v:tick", now))
	e.at = clock.Never
	out.Add(0, append(out.Alloc(1), 7))
}

func (e *echo) Deadline() clock.Time { return e.at }

func pair(cfg Config, link LinkConfig) (*Net, *echo, *echo, *Link) {
	n := New(cfg)
	a, b := &echo{at: clock.Never}, &echo{at: clock.Never}
	link.A, link.B = End{n.Add("a", a), 0}, End{n.Add("b", b), 0}
	return n, a, b, n.Connect(link)
}

func sendFrom(n *Net, id NodeID, data ...[]byte) {
	_, out := n.Begin(id)
	for _, d := range data {
		out.Add(0, append(out.Alloc(len(d)), d...))
	}
	n.End(id)
}

func TestLinkDelayAndRate(t *testing.T) {
	// 125 bytes at 1 Mbit/s take 1 ms; the second frame waits for the first.
	n, _, b, _ := pair(Config{}, LinkConfig{Name: "l", Delay: 10 * time.Microsecond, Rate: 1_000_000})
	sendFrom(n, 0, make([]byte, 125), make([]byte, 125))
	if err := n.RunUntil(clock.Time(time.Second)); err != nil {
		t.Fatal(err)
	}
	var at []string
	for _, l := range b.log {
		at = append(at, l[:strings.IndexByte(l, ':')])
	}
	if want := []string{"1.01ms", "2.01ms"}; !slices.Equal(at, want) {
		t.Errorf("frames arrived at %v, want %v", at, want)
	}
	if n.Now() != clock.Time(time.Second) {
		t.Errorf("now = %v", n.Now())
	}
}

func TestTiesGoByPushOrder(t *testing.T) {
	n, a, b, _ := pair(Config{}, LinkConfig{Name: "l", Delay: time.Microsecond})
	sendFrom(n, 0, []byte{1}, []byte{2})
	n.At(clock.Time(time.Microsecond), func() { b.log = append(b.log, "call") })
	a.at, b.at = clock.Time(time.Microsecond), clock.Time(time.Microsecond)
	n.rekey(0)
	n.rekey(1)
	if err := n.RunUntil(clock.Time(time.Microsecond)); err != nil {
		t.Fatal(err)
	}
	if want := []string{"1µs:0:01", "1µs:0:02", "call", "1µs:tick"}; !slices.Equal(b.log, want) {
		t.Errorf("b saw %v, want %v", b.log, want)
	}
}

func TestQueueIsBounded(t *testing.T) {
	n, _, b, l := pair(Config{}, LinkConfig{Name: "l", Rate: 8_000_000, Queue: 2})
	sendFrom(n, 0, []byte{1}, []byte{2}, []byte{3}, []byte{4}, []byte{5})
	if err := n.RunUntil(clock.Time(time.Second)); err != nil {
		t.Fatal(err)
	}
	if s := l.Stats(fault.Up); len(b.log) != 3 || s.LostQueue != 2 || s.Sent != 5 || s.Delivered != 3 {
		t.Errorf("one on the wire and two waiting: arrived %v, stats %+v", b.log, s)
	}
}

func TestVerdicts(t *testing.T) {
	verdict := func(_ clock.Time, f []byte) fault.Verdict {
		switch f[0] {
		case 1:
			return fault.Verdict{Drop: true}
		case 2:
			return fault.Verdict{Copies: 1}
		case 3:
			return fault.Verdict{Delay: time.Second}
		default:
			return fault.Verdict{Corrupt: true, Bit: 7}
		}
	}
	n, _, b, l := pair(Config{}, LinkConfig{Name: "l", Up: verdict})
	frame := func(first byte) []byte { return append([]byte{first}, make([]byte, 14)...) }
	sendFrom(n, 0, frame(1), frame(2), frame(3), frame(4))
	if err := n.RunUntil(clock.Time(2 * time.Second)); err != nil {
		t.Fatal(err)
	}
	z := strings.Repeat("00", 13)
	want := []string{"0s:0:02" + z + "00", "0s:0:02" + z + "00", "0s:0:04" + z + "01", "1s:0:03" + z + "00"}
	if !slices.Equal(b.log, want) {
		t.Errorf("b saw %v, want %v", b.log, want)
	}
	s := l.Stats(fault.Up)
	if s.LostFault != 1 || s.Duplicated != 1 || s.Delayed != 1 || s.Corrupted != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestDownLosesFrames(t *testing.T) {
	n, a, b, l := pair(Config{}, LinkConfig{Name: "l", Delay: 10})
	sendFrom(n, 0, []byte{1})
	n.At(5, func() { l.SetUp(false) }) // the frame is in flight
	n.At(20, func() { sendFrom(n, 0, []byte{2}) })
	n.At(30, func() {
		l.SetUp(true)
		n.SetUp(1, false)
		sendFrom(n, 0, []byte{3})
	})
	n.At(50, func() {
		n.Replace(1, b)
		sendFrom(n, 0, []byte{4})
	})
	if err := n.RunUntil(100); err != nil {
		t.Fatal(err)
	}
	if want := []string{"60ns:0:04"}; !slices.Equal(b.log, want) || len(a.log) != 0 {
		t.Errorf("b saw %v, want %v", b.log, want)
	}
	if s := l.Stats(fault.Up); s.LostDown != 3 {
		t.Errorf("stats %+v, want 3 lost to what was down", s)
	}
}

func TestFramesForNoLinkAreTraced(t *testing.T) {
	var kinds []EventKind
	n := New(Config{Trace: func(e *Event) { kinds = append(kinds, e.Kind) }})
	n.Add("alone", &echo{at: clock.Never})
	sendFrom(n, 0, []byte{1})
	if !slices.Equal(kinds, []EventKind{NoLink}) {
		t.Errorf("trace %v", kinds)
	}
}

func TestBounds(t *testing.T) {
	t.Run("events", func(t *testing.T) {
		n, a, b, _ := pair(Config{MaxEvents: 1000}, LinkConfig{Name: "l", Delay: 1})
		a.left, b.left = 1<<20, 1<<20
		n.Go("client", false, func(p *Proc) { p.Park(clock.Never, "a miracle") })
		sendFrom(n, 0, []byte{1})
		wantStuck(t, n.Run(), "more than 1000 events", "client waits for a miracle")
		n.Close()
	})
	t.Run("time", func(t *testing.T) {
		n, _, _, _ := pair(Config{MaxTime: 100}, LinkConfig{Name: "l"})
		n.Go("client", false, func(p *Proc) { p.Park(101, "a nap") })
		wantStuck(t, n.Run(), "the run would pass 100ns", "client waits for a nap")
		n.Close()
	})
	t.Run("nothing left", func(t *testing.T) {
		n, _, _, _ := pair(Config{}, LinkConfig{Name: "l"})
		n.Go("server", true, func(p *Proc) { p.Park(clock.Never, "requests") })
		n.Go("client", false, func(p *Proc) { p.Park(clock.Never, "completions of CQ 1") })
		err := n.Run()
		wantStuck(t, err, "nothing is left to happen", "client waits for completions of CQ 1 since 0s")
		if strings.Contains(err.Error(), "server") {
			t.Errorf("a daemon may wait for ever: %v", err)
		}
		n.Close()
	})
}

func wantStuck(t *testing.T, err error, parts ...string) {
	t.Helper()
	var stuck *StuckError
	if !errors.As(err, &stuck) {
		t.Fatalf("error %v, want a StuckError", err)
	}
	for _, p := range parts {
		if !strings.Contains(err.Error(), p) || !strings.HasPrefix(err.Error(), "stuck: ") {
			t.Errorf("error %q does not say %q", err, p)
		}
	}
}

func TestHashTellsRunsApart(t *testing.T) {
	run := func(delay time.Duration) uint64 {
		var h Hash
		n, a, _, _ := pair(Config{Trace: h.Add}, LinkConfig{Name: "l", Delay: delay})
		a.left = 3
		sendFrom(n, 0, []byte{1, 2, 3})
		if err := n.RunUntil(1000); err != nil {
			t.Fatal(err)
		}
		return h.Sum()
	}
	if a, b := run(5), run(5); a != b {
		t.Error("equal runs have different digests")
	}
	if run(5) == run(6) {
		t.Error("different runs have one digest")
	}
}

func TestSteadyStateAllocatesNothing(t *testing.T) {
	n, a, b, _ := pair(Config{}, LinkConfig{Name: "l", Delay: 10})
	a.left, b.left = 1<<30, 1<<30
	quiet := &quietEcho{}
	n.Replace(0, quiet)
	n.Replace(1, quiet)
	sendFrom(n, 0, make([]byte, 100), make([]byte, 4000))
	at := clock.Time(0)
	step := func() {
		at += 1000
		if err := n.RunUntil(at); err != nil {
			t.Fatal(err)
		}
	}
	step()
	if got := testing.AllocsPerRun(100, step); got != 0 {
		t.Errorf("%v allocations in a step of %d events", got, 200)
	}
}

type quietEcho struct{}

func (quietEcho) Frame(_ clock.Time, port int, f packetio.Frame, out *packetio.Batch) {
	f.Port = port
	out.Copy(f)
}
func (quietEcho) Tick(clock.Time, *packetio.Batch) {}
func (quietEcho) Deadline() clock.Time             { return clock.Never }

func BenchmarkEvents(b *testing.B) {
	n, _, _, _ := pair(Config{MaxEvents: 1 << 62}, LinkConfig{Name: "l", Delay: 10})
	n.Replace(0, quietEcho{})
	n.Replace(1, quietEcho{})
	for range 100 {
		sendFrom(n, 0, make([]byte, 1024))
	}
	b.ResetTimer()
	b.ReportAllocs()
	for i := 0; i < b.N; i += 100 {
		if err := n.RunUntil(n.Now() + 10); err != nil {
			b.Fatal(err)
		}
	}
}
