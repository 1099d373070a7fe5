package top

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	tea "charm.land/bubbletea/v2"
	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/softrnic/wire"
)

var rewrite = flag.Bool("rewrite", false, "write the screens of this run into testdata; read the difference")

// recorder is a Doer that records its calls.
type recorder struct {
	samples int
	did     []string
	stopped []int
}

func (r *recorder) Sample() tea.Cmd { r.samples++; return nil }

func (r *recorder) Do(id int, args []string) tea.Cmd {
	r.did = append(r.did, fmt.Sprintf("%d: %s", id, strings.Join(args, " ")))
	return nil
}

func (r *recorder) Stop(id int) { r.stopped = append(r.stopped, id) }

// play gives a model messages, and key presses by their names.
func play(m Model, msgs ...any) Model {
	for _, msg := range msgs {
		if name, ok := msg.(string); ok {
			msg = press(name)
		}
		next, _ := m.Update(msg)
		m = next.(Model)
	}
	return m
}

// press returns the message for the press of a key.
func press(name string) tea.KeyPressMsg {
	named := map[string]tea.Key{
		"up": {Code: tea.KeyUp}, "down": {Code: tea.KeyDown}, "tab": {Code: tea.KeyTab}, "pgdown": {Code: tea.KeyPgDown}, "pgup": {Code: tea.KeyPgUp},
		"shift+tab": {Code: tea.KeyTab, Mod: tea.ModShift}, "ctrl+c": {Code: 'c', Mod: tea.ModCtrl},
	}
	if k, ok := named[name]; ok {
		return tea.KeyPressMsg(k)
	}
	r, _ := utf8.DecodeRuneInString(name)
	return tea.KeyPressMsg(tea.Key{Code: r, Text: name})
}

func size(w, h int) tea.WindowSizeMsg { return tea.WindowSizeMsg{Width: w, Height: h} }

// second returns the time of the n-th sample of a test.
func second(n int) time.Time { return time.Date(2026, 11, 20, 12, 0, n, 0, time.UTC) }

// idle is a sample of a small rack without traffic.
func idle(n int) Sample {
	s := Sample{At: second(n), Rack: "default", State: "up", Program: "swordbox", Uptime: time.Duration(60+n) * time.Second}
	for _, name := range []string{"md0", "ms0", "ms1", "cn0", "cn1", "cn2", "cn3"} {
		s.Nodes = append(s.Nodes, Node{Name: name, Role: "compute", State: "up", Link: "up"})
	}
	s.Nodes = append(s.Nodes, Node{Name: "switch", Role: "switch", State: "up"})
	s.QPs = []QP{{Host: "ms0", QPN: 0x58e8ed, Type: "RC", State: "RTS", Peer: "switch", PeerQPN: 0x188e3, SendPSN: 0x70141, RecvPSN: 0x44b150}}
	s.Switch = Switch{
		Counters: []Counter{{"rewritten", 36}, {"emitted", 12}, {"held", 0}, {"hard moved", 4}},
		Tables:   []Table{{"macs", 8, 4096}, {"flows", 20, 4096}, {"words", 2, 65536}},
		Shared:   []Shared{{Name: "ms0/0", State: "up", Most: 128, NextPSN: 0x44b150}, {Name: "ms1/0", State: "waiting", Tries: 3}},
		Words:    []Word{{Server: "ms0", VA: 0x7f00138a5008, State: "Known", Value: 0x99aabbccddeeff00}, {Server: "ms0", VA: 0x7f00138a5000, State: "Pass"}},
	}
	return s
}

// loaded is the sample of the n-th second of a rack with traffic.
func loaded(n int) Sample {
	s, k := idle(n), uint64(n)
	cn0, ms0 := &s.Nodes[3], &s.Nodes[1]
	cn0.UpPackets, cn0.UpBits, cn0.DownPackets, cn0.DownBits = 51_000+k, 1_700_000_000/k, 2_100, 1_000_000
	ms0.DownPackets, ms0.DownBits, ms0.UpPackets, ms0.UpBits = cn0.UpPackets, cn0.UpBits, 2_100, 1_000_000
	s.QPs = append(s.QPs,
		QP{Host: "ms0", QPN: 0x11, Type: "RC", State: "RTS", Peer: "cn0", PeerQPN: 0x12, RecvPSN: wire.PSN(0xfffff0 + 38_000*n).Add(0), SendPSN: 7},
		QP{Host: "cn0", QPN: 0x12, Type: "RC", State: "RTS", Peer: "ms0", PeerQPN: 0x11, SendPSN: wire.PSN(0xfffff0).Add(38_000 * n), RecvPSN: 7, SendQueued: 100, Retrans: 26 * k},
		QP{Host: "cn1", QPN: 0x13, Type: "UD", State: "RTS", RecvQueued: 64},
	)
	s.QPs[1].RecvPSN = wire.PSN(0xfffff0).Add(38_000 * n)
	s.Switch.Counters[0].Value += 16_100 * k
	s.Switch.Counters[3].Value += 8_000 * k
	s.Switch.Words[1] = Word{Server: "ms0", VA: 0x7f00138a5000, State: "Known", Value: k, Pending: 3}
	s.Switch.Shared[0].Open, s.Switch.Shared[0].Queued = 12, 2
	return s
}

// steering is loaded with a switch that steers the appends and reads of a store.
func steering(n int) Sample {
	s := loaded(n)
	for i, h := range []int{3, 5} {
		s.Nodes[h].Clients, s.Nodes[h].Ops, s.Nodes[h].P99 = 8, uint64(20_000-4_000*n*i), uint64(310*n)
	}
	for i := range uint64(12) {
		k := Key{Key: i * i * i * 1_000_003, Reads: 900 * uint64(n) / (i + 1), Appends: 30 * uint64(n), Steered: 800 * uint64(n) / (i + 1), Rate: 8000 / float64(i+1)}
		if i != 2 {
			k.Server, k.VA = "ms1", 0x7f00138a5000+64*i
		}
		s.Switch.Keys = append(s.Switch.Keys, k)
	}
	slices.Reverse(s.Switch.Keys)
	return s
}

// faulty is loaded, with faults.
func faulty(n int) Sample {
	s, k := loaded(n), uint64(n)
	s.State = "crashed"
	s.Nodes[3].Faults, s.Nodes[3].Dropped, s.Nodes[3].Retrans = []string{"f1", "f2"}, 5000*k, 26*k
	s.Nodes[4].State, s.Nodes[4].Link = "crashed", "no-carrier"
	s.Nodes[5].State, s.Nodes[5].Link = "link-down", "down"
	s.Faults = []Fault{
		{"f1", "active", "loss 10% --link cn0", 5000 * k},
		{"f2", "spent", "drop --link cn0 --opcode RC_WRITE_LAST --once", 1},
	}
	s.Partition = [][]string{{"md0"}, {"cn2", "cn3"}}
	s.Captures = 1
	s.QPs[3].State = "ERR"
	return s
}

func TestScreens(t *testing.T) {
	plain := Style{Plain: true}
	three := func(f func(int) Sample) []any { return []any{f(1), f(2), f(3)} }
	for _, c := range []struct {
		name  string
		style Style
		w, h  int
		msgs  []any
	}{
		{"start", plain, 80, 24, nil},
		{"not-up", plain, 80, 24, []any{Sample{Gone: "rack \"default\": is not up: run `rdmalab up` first"}}},
		{"idle-80", plain, 80, 24, three(idle)},
		{"idle-120", plain, 120, 40, three(idle)},
		{"load-80", plain, 80, 24, three(loaded)},
		{"load-80-qps", plain, 80, 24, append(three(loaded), "2")},
		{"load-80-switch", plain, 80, 24, append(three(loaded), "3")},
		{"stores-80", plain, 80, 24, three(steering)},
		{"stores-80-ascii", Style{Plain: true, ASCII: true}, 80, 24, three(steering)},
		{"failed-qps-80", plain, 80, 24, append(three(func(n int) Sample {
			s := loaded(n)
			for i := range 40 {
				s.QPs = append(s.QPs, QP{Host: "ms1", QPN: wire.QPN(0x100 + i), Type: "RC", State: "ERR", Peer: "cn3", PeerQPN: wire.QPN(0x200 + i)})
			}
			return s
		}), "2")},
		{"keys-80", plain, 80, 24, append(three(steering), "3")},
		{"keys-120", plain, 120, 40, append(three(steering), "3")},
		{"load-120", plain, 120, 40, three(loaded)},
		{"faults-80", plain, 80, 24, append(three(faulty), "down", "down", "down", "l", Done{1, "f3: loss 10% --link cn0", false}, "c", Done{2, "cn0 has crashed", false}, "r")},
		{"faults-80-colours", Style{}, 80, 24, append(three(faulty), "down")},
		{"faults-80-ascii", Style{Plain: true, ASCII: true}, 80, 24, three(faulty)},
		{"faults-120", plain, 120, 40, append(three(faulty), "2")},
		{"faults-120-ascii", Style{Plain: true, ASCII: true}, 120, 40, three(faulty)},
		{"long-outcome", plain, 80, 24, append(three(idle), "p", Done{1, "1 packets captured,\n0 of them touched by a fault or the switch", false})},
		{"failed", plain, 80, 24, append(three(idle), "c", Done{1, "rdmalab: md0: has crashed already", true})},
		{"switch-has-no-link", plain, 80, 24, append(three(idle), "down", "down", "down", "down", "down", "down", "down", "down", "l")},
		{"switch-silent", plain, 80, 24, append(three(func(n int) Sample {
			s := idle(n)
			s.Nodes[7].State, s.Switch = "silent", Switch{}
			return s
		}), "3")},
		{"gone", plain, 80, 24, append(three(loaded), Sample{Gone: "rack \"default\": is not up: run `rdmalab up` first"})},
		{"help-80", plain, 80, 24, append(three(idle), "?")},
		{"small", plain, 75, 24, three(idle)},
		{"smallest", plain, minWidth, minHeight, three(faulty)},
	} {
		t.Run(c.name, func(t *testing.T) {
			m := play(New(&recorder{}, c.style), append([]any{size(c.w, c.h)}, c.msgs...)...)
			got := m.Screen()
			if c.name != "small" {
				checkSize(t, got, c.w, c.h)
			}
			golden(t, c.name, got)
		})
	}
	t.Run("print", func(t *testing.T) {
		a, b := faulty(1), faulty(2)
		golden(t, "print", Print(plain, &a, &b))
	})
}

// checkSize checks that a screen has exactly the terminal's size.
func checkSize(t *testing.T, screen string, w, h int) {
	t.Helper()
	lines := strings.Split(screen, "\n")
	if len(lines) != h {
		t.Errorf("%d lines, want %d", len(lines), h)
	}
	for i, l := range lines {
		if n := utf8.RuneCountInString(unpainted(l)); n > w {
			t.Errorf("line %d is %d wide: %q", i, n, l)
		}
	}
}

// unpainted returns a line without its escape sequences.
func unpainted(s string) string {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, "\x1b[")
		b.WriteString(before)
		if !found {
			return b.String()
		}
		_, s, _ = strings.Cut(after, "m")
	}
}

func golden(t *testing.T, name, got string) {
	t.Helper()
	file := filepath.Join("testdata", name+".txt")
	got = strings.ReplaceAll(got, "\x1b", "␛") + "\n" // replaced because a terminal on which the file is printed would execute the sequences
	if *rewrite {
		if err := os.WriteFile(file, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(file)
	if errors.Is(err, fs.ErrNotExist) {
		t.Fatalf("no %s: run go test ./topo/top -rewrite", file)
	} else if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(want), got); diff != "" {
		t.Errorf("screen (-want +got), go test ./topo/top -rewrite writes it again:\n%s", diff)
	}
}
