package top

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	tea "charm.land/bubbletea/v2"
)

func TestKeysRunCommandsOnWhatIsChosen(t *testing.T) {
	for _, c := range []struct {
		keys []string
		want string
	}{
		{[]string{"l"}, "1: inject loss 10% --link md0"},
		{[]string{"down", "d"}, "1: inject delay 1ms --link ms0"},
		{[]string{"down", "down", "up", "h"}, "1: heal --link ms0"},
		{[]string{"H"}, "1: heal --all"},
		{[]string{"j", "j", "j", "c"}, "1: crash cn0"},
		{[]string{"up", "r"}, "1: restart md0"},
		{[]string{"p"}, "1: capture md0 --snaplen 256 -w rdmalab-md0-120002.pcapng"},
		{[]string{"j", "j", "j", "j", "j", "j", "j", "j", "j", "c"}, "1: crash switch"},
		{[]string{"j", "j", "j", "j", "j", "j", "j", "p"}, "1: capture --snaplen 256 -w rdmalab-all-120002.pcapng"},
	} {
		r := &recorder{}
		m := play(New(r, Style{Plain: true}), size(80, 24), idle(1), idle(2))
		for _, k := range c.keys {
			m = play(m, k)
		}
		if len(r.did) != 1 || r.did[0] != c.want {
			t.Errorf("%v did %q, want %q", c.keys, r.did, c.want)
		}
		if command := strings.TrimPrefix(c.want, "1: "); !strings.Contains(m.Screen(), "$ rdmalab "+command) {
			t.Errorf("%v: the screen does not show %q:\n%s", c.keys, command, m.Screen())
		}
	}
}

func TestCommandsNameTheRack(t *testing.T) {
	r := &recorder{}
	play(New(r, Style{}, "--rack", "mine"), size(80, 24), idle(1), "c")
	if want := []string{"1: crash md0 --rack mine"}; !slices.Equal(r.did, want) {
		t.Errorf("did %q, want %q", r.did, want)
	}
}

func TestCommandsWaitForThoseBefore(t *testing.T) {
	r := &recorder{}
	m := play(New(r, Style{Plain: true}), size(80, 24), idle(1), "p", "c", "r", "H")
	if want := 2; len(r.did) != want { // the capture and the crash run at the same time
		t.Fatalf("did %q, want %d of them", r.did, want)
	}
	m = play(m, Done{ID: 2})
	if len(r.did) != 3 || r.did[2] != "3: restart md0" {
		t.Fatalf("did %q after the crash", r.did)
	}
	m = play(m, Done{ID: 1}) // the end of the capture starts no other command while the restart runs
	if len(r.did) != 3 {
		t.Fatalf("did %q while the restart runs", r.did)
	}
	play(m, Done{ID: 3, Failed: true})
	if len(r.did) != 4 || r.did[3] != "4: heal --all" {
		t.Fatalf("did %q after the restart", r.did)
	}
}

func TestCaptureIsEndedByItsKey(t *testing.T) {
	r := &recorder{}
	m := play(New(r, Style{Plain: true}), size(80, 24), idle(1), "p", "down", "p", "p")
	if len(r.did) != 1 || !slices.Equal(r.stopped, []int{1, 1}) {
		t.Fatalf("did %q, stopped %v", r.did, r.stopped)
	}
	m = play(m, Done{ID: 1, Output: "12 packets captured"})
	if s := m.Screen(); !strings.Contains(s, "12 packets captured") || !strings.Contains(s, "p=capture") {
		t.Errorf("after the capture:\n%s", s)
	}
	play(m, "p")
	if len(r.did) != 2 || !strings.Contains(r.did[1], "capture ms0") {
		t.Errorf("did %q", r.did)
	}
}

func TestNothingIsRunWithoutARack(t *testing.T) {
	r := &recorder{}
	play(New(r, Style{}), size(80, 24), "l", "c", "p", "down", "pgdown", Sample{Gone: "not there"}, "r")
	if len(r.did) != 0 {
		t.Errorf("did %q", r.did)
	}
}

func TestEachSampleAsksForTheNext(t *testing.T) {
	r := &recorder{}
	m := New(r, Style{})
	m.Init()
	play(m, idle(1), Sample{Gone: "x"}, idle(2), "q")
	if r.samples != 4 {
		t.Errorf("asked for %d samples, want 4", r.samples)
	}
}

func TestQuitKeys(t *testing.T) {
	for _, k := range []string{"q", "ctrl+c"} {
		for _, before := range []string{"", "?"} {
			m := New(&recorder{}, Style{})
			if before != "" {
				m = play(m, before)
			}
			_, cmd := m.Update(press(k))
			if cmd == nil {
				t.Fatalf("%s after %q does nothing", k, before)
			}
			if _, ok := cmd().(tea.QuitMsg); !ok {
				t.Errorf("%s after %q does not quit", k, before)
			}
		}
	}
}

func TestRatesOfWhatWasRestartedAreNone(t *testing.T) {
	a, b := loaded(5), loaded(6)
	a.Nodes[0].Dropped, b.Nodes[0].Dropped = 100, 10
	b.QPs[2].QPN++ // the queue pair was replaced by another one
	r := since(&a, &b)
	if n := r.of(r.drops, "md0", b.Nodes[0].Dropped); n != 0 {
		t.Errorf("a counter that went back grows by %d a second", n)
	}
	if on, again := r.psns(&b.QPs[2]); on != 0 || again != 0 {
		t.Errorf("a queue pair that was not there before goes on by %d, %d", on, again)
	}
	if on, _ := r.psns(&b.QPs[1]); on != 38_000 {
		t.Errorf("PSNs go on by %d a second over their wrap, want 38000", on)
	}
	later := b
	later.At = a.At.Add(2e9)
	r = since(&a, &later)
	if n := r.of(r.counts, "rewritten", later.Switch.Counters[0].Value); n != 8050 {
		t.Errorf("rewritten %d a second over two seconds, want 8050", n)
	}
}

func TestPartitionOfOneGroupSaysFromWhom(t *testing.T) {
	s := idle(1)
	s.Partition = [][]string{{"cn0"}}
	if text := play(New(&recorder{}, Style{Plain: true}), size(80, 24), s).Screen(); !strings.Contains(text, "partition: cn0 | all others") {
		t.Errorf("the screen does not say who is cut off from whom:\n%s", text)
	}
}

func TestAmountsFitIntoTheirColumns(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0", 999: "999", 1000: "1.0k", 99_949: "99.9k", 99_950: "100k", 999_499: "999k", 999_500: "1.0M", 1_700_000_000: "1.7G", 1 << 63: "9223P",
	} {
		got := amount(n)
		if n == 1<<63 {
			want = "lots"
		}
		if got != want || len(got) > 5 {
			t.Errorf("amount(%d) is %q, want %q", n, got, want)
		}
	}
}

// TestAnySequenceOfMessagesFillsTheScreen gives a model random messages, with terminals of all
// sizes.
func TestAnySequenceOfMessagesFillsTheScreen(t *testing.T) {
	const seeds = 60
	keys := []string{"l", "d", "h", "H", "c", "r", "p", "q", "?", "1", "2", "3", "tab", "shift+tab", "up", "down", "pgup", "pgdown", "j", "k", "J", "K", "x", "ä"}
	makers := []func(int) Sample{idle, loaded, faulty, func(int) Sample { return Sample{Gone: "gone\x1b[2J\nand more"} }, func(n int) Sample { return Sample{At: second(n)} }}
	for seed := range uint64(seeds) {
		r := rand.New(rand.NewPCG(seed, 1))
		m := play(New(&recorder{}, Style{Plain: r.IntN(2) == 0, ASCII: r.IntN(2) == 0}), size(80, 24))
		for n := range 60 {
			var msg any
			switch r.IntN(6) {
			case 0:
				msg = size(r.IntN(160), r.IntN(60))
			case 1, 2:
				msg = makers[r.IntN(len(makers))](n + 1)
			case 3:
				msg = Done{ID: r.IntN(10), Output: strings.Repeat("o\x07\x1b[2J", r.IntN(90)), Failed: r.IntN(2) == 0}
			default:
				msg = keys[r.IntN(len(keys))]
			}
			m = play(m, msg)
			if m.width < minWidth || m.height < minHeight {
				_ = m.Screen() // an error is shown on the screen
				continue
			}
			screen := m.Screen()
			checkSize(t, screen, m.width, m.height)
			if s := unpainted(screen); strings.ContainsAny(s, "\x1b\x07") {
				t.Errorf("control characters reach the terminal: %q", s)
			}
			if t.Failed() {
				t.Fatalf("seed %d message %d (%s)", seed, n, fmt.Sprintf("%.80v", msg))
			}
		}
	}
}
