package scenario

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// A schedule is parsed from its text.
func TestScheduleText(t *testing.T) {
	for _, text := range []string{
		"mixed", "mixed/drop@cn0-up.1", "rules/late3@ms0-down.12/rules4@cn1-up.2/copy0@ms0-up.7/copy2@cn0-down.1", "silent/silence12ms@cn0-down.3",
	} {
		s, err := parseSchedule(text)
		if err != nil || s.String() != text {
			t.Errorf("%q: %v, %v", text, s, err)
		}
	}
	for text, want := range map[string]string{
		"": "no small setup", "moon/drop@cn0-up.1": "no small setup", "mixed/": "want KIND@", "mixed/drop": "want KIND@",
		"mixed/drop@cn0-up": "want KIND@", "mixed/drop3@cn0-up.1": "drop takes no number", "mixed/drop@cn9-up.1": "directions are",
		"mixed/lose@cn0-up.1": "kinds are", "mixed/late@cn0-up.1": "the number behind late", "mixed/late-1@cn0-up.1": "the number behind late",
		"mixed/drop@cn0-up.0": "counted from 1", "mixed/drop@cn0-up.x": "counted from 1", "mixed/rules1@cn0-up.1": "has rules 0 to 0",
		"mixed" + strings.Repeat("/drop@cn0-up.1", maxActs+1): "at most",
	} {
		if _, err := parseSchedule(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.60q: %v, want %q", text, err, want)
		}
	}
}

func FuzzSchedule(f *testing.F) {
	f.Add("rules/late3@ms0-down.12/rules4@cn1-up.2/copy0@ms0-up.7")
	f.Fuzz(func(t *testing.T, text string) {
		s, err := parseSchedule(text)
		if err != nil {
			return
		}
		if again, err := parseSchedule(s.String()); err != nil || again.String() != s.String() {
			t.Errorf("%q: %v, %v", text, again, err)
		}
	})
}

// playSchedule runs a schedule and returns its packets, one a line.
func playSchedule(t *testing.T, text string) (*outcomeOf, []string) {
	t.Helper()
	s, err := parseSchedule(text)
	if err != nil {
		t.Fatal(err)
	}
	setup, err := findSetup(s.setup)
	if err != nil {
		t.Fatal(err)
	}
	var capture, lines bytes.Buffer
	e := newEnv(Scenario{}, 1, Options{Pcap: &capture})
	out := setup.judged(e, s)
	e.finish()
	d, err := dump.New(&lines, dump.Config{})
	if err == nil {
		err = d.Dump("sim", &capture)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out, strings.Split(lines.String(), "\n")
}

// Each act has the effect on its packet that its text says, and the trace shows it.
func TestActs(t *testing.T) {
	for _, c := range []struct {
		act  string
		want int // lines of the trace that name the act
		last string
	}{
		{"drop@ms0-down.1", 1, "lost-fault"},
		{"late1@ms0-down.2", 2, "fault late1"},
		{"copy0@cn0-up.1", 2, "fault copy0"},
		{"copy2@ms0-up.1", 2, "fault copy2"},
		{"silence3ms@cn1-down.1", 1, "lost-fault"},
	} {
		out, lines := playSchedule(t, "mixed/"+c.act)
		var hits []string
		for _, l := range lines {
			if strings.Contains(l, "fault "+c.act) {
				hits = append(hits, l)
			}
		}
		if out.err != nil || len(hits) != c.want || !strings.Contains(hits[len(hits)-1], c.last) {
			t.Errorf("%s: %v\n%s", c.act, out.err, strings.Join(hits, "\n"))
		}
		for _, h := range hits[1:] {
			if psnOf(h) != psnOf(hits[0]) {
				t.Errorf("%s: two packets\n%s", c.act, strings.Join(hits, "\n"))
			}
		}
	}
	out, lines := playSchedule(t, "mixed/silence3ms@cn1-down.1")
	if n := strings.Count(strings.Join(lines, "\n"), "fault silence"); n < 2 || out.err != nil {
		t.Errorf("a silence loses %d packets, %v", n, out.err)
	}
	if out, _ := playSchedule(t, "mixed/drop@cn0-up.900"); out.err == nil || !strings.Contains(out.err.Error(), "no such packet") {
		t.Errorf("an act on a packet that is never sent: %v", out.err)
	}
	plain, _ := playSchedule(t, "rules")
	if changed, _ := playSchedule(t, "rules/rules1@cn1-up.1"); changed.digest == plain.digest || changed.err != nil {
		t.Errorf("rules that change: %v", changed.err)
	}
}

func psnOf(line string) string {
	_, after, _ := strings.Cut(line, "psn=")
	psn, _, _ := strings.Cut(after, " ")
	return psn
}

// A packet that is late by n is overtaken by n packets.
func TestLateIsByPackets(t *testing.T) {
	_, lines := playSchedule(t, "mixed/late3@cn0-up.1")
	between, in := 0, false
	for _, l := range lines {
		switch {
		case strings.Contains(l, "late3@") && in:
			if between != 3 {
				t.Errorf("%d packets have overtaken it", between)
			}
			return
		case strings.Contains(l, "late3@"):
			in = true
		case in && strings.Contains(l, "[cn0-up]"):
			between++
		}
	}
	t.Error("the packet was not sent again")
}

// The runs of a search and its result depend only on the seed, and not on the number of processors.
// Every schedule of one act runs if the budget allows.
func TestSearchIsRepeatable(t *testing.T) {
	run := func() *searcher {
		setup, err := findSetup("neighbour")
		if err != nil {
			t.Fatal(err)
		}
		x := &searcher{env: newEnv(Scenario{}, 7, Options{}), setup: setup, depth: 1, budget: 1000}
		x.search()
		return x
	}
	a, b := run(), run()
	if a.String() != b.String() || !a.whole || len(a.findings) > 0 || a.ran < 100 {
		t.Errorf("%s\n%s\n%v", a, b, a.findings)
	}
	o := a.alone(schedule{setup: "neighbour"})
	if want := 1 + len(o.entered)*len(packetActs); a.ran != want {
		t.Errorf("%d schedules ran, there are %d of one act", a.ran, want)
	}
}

// Of two schedules that deliver the same packets in the same order, only one is extended.
func TestEqualRunsArePruned(t *testing.T) {
	setup, err := findSetup("neighbour")
	if err != nil {
		t.Fatal(err)
	}
	x := &searcher{env: newEnv(Scenario{}, 1, Options{}), setup: setup, digests: map[uint64]struct{}{}, covered: map[transition]struct{}{}, budget: 10, depth: 1}
	s := schedule{setup: "neighbour"}
	drops := s.with(act{kind: drop, half: 1, index: 1})
	if nodes := x.run([]schedule{s, drops, drops}, true); len(nodes) != 2 || x.pruned != 1 {
		t.Errorf("%d nodes, %d pruned", len(nodes), x.pruned)
	}
	if covered := len(x.covered); covered < 5 {
		t.Errorf("%d transitions", covered)
	}
}

// A client may fail under a rule if it also fails without rules.
func TestDeadClientsAreCompared(t *testing.T) {
	out, _ := playSchedule(t, "mixed/silence900ms@cn0-down.1")
	if out.err != nil || !out.excused {
		t.Errorf("a client that hears nothing: %v, excused %v", out.err, out.excused)
	}
}

// If a client may die, damage that a broken NIC of the memory server does is still found.
func TestDamageBehindADeadClient(t *testing.T) {
	s, err := parseSchedule("mixed/silence900ms@cn0-down.1")
	if err != nil {
		t.Fatal(err)
	}
	setup, err := findSetup(s.setup)
	if err != nil {
		t.Fatal(err)
	}
	e := newEnv(Scenario{}, 1, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
		if name == "ms0" {
			return &tamper{Node: n, all: true, out: func(f *wire.Frame) bool {
				f.AtomicAck++
				return f.BTH.Opcode == wire.RCAtomicAck
			}}
		}
		return n
	}})
	out := setup.judged(e, s)
	e.finish()
	if out.err == nil || !strings.Contains(out.err.Error(), "not linearizable") {
		t.Errorf("%v, excused %v", out.err, out.excused)
	}
}

// Two acts on one packet are tried if they have an effect that neither has alone, and both are
// executed.
func TestActsOnOnePacket(t *testing.T) {
	setup, err := findSetup("long")
	if err != nil {
		t.Fatal(err)
	}
	x := &searcher{env: newEnv(Scenario{}, 1, Options{}), setup: setup, depth: 2, budget: 1}
	for text, want := range map[string]int{
		"long/rules1@cn0-up.2": 1 + 1 + len(packetActs), // the other rules, a silence, and all acts on packets
		"long/late1@cn0-up.2":  1,                       // a copy that is late by two
		"long/late3@cn0-up.2":  1,
		"long/drop@cn0-up.2":   0,
	} {
		s, err := parseSchedule(text)
		if err != nil {
			t.Fatal(err)
		}
		o := x.alone(s)
		got := 0
		for _, a := range x.next(s, o) {
			if a.half == s.acts[0].half && a.index == s.acts[0].index {
				got++
				if both := x.alone(s.with(a)); both.err != nil || both.digest == o.digest {
					t.Errorf("%s: %v; the same as without the second act: %v", s.with(a), both.err, both.digest == o.digest)
				}
			}
		}
		if got != want {
			t.Errorf("%s: %d acts on the same packet, want %d", text, got, want)
		}
	}
}

// A long WRITE takes three packets; the second and the third set the words.
func TestLongWrite(t *testing.T) {
	_, lines := playSchedule(t, "long")
	n := 0
	for _, l := range lines {
		if strings.Contains(l, "cn0-up") && (strings.Contains(l, "WRITE_FIRST") || strings.Contains(l, "WRITE_MIDDLE") || strings.Contains(l, "WRITE_LAST")) {
			n++
		}
	}
	if n != 9 {
		t.Errorf("three WRITEs take %d packets", n)
	}
}

// The memory server's NIC executes requests wrongly. The judge finds that in a schedule without any
// lost or late packet.
func TestJudgeOfSchedules(t *testing.T) {
	for _, c := range []struct {
		setup, want string
		bug         tamper
	}{
		{"rules", "not linearizable", tamper{all: true, in: func(f *wire.Frame) bool {
			f.AtomicETH.SwapOrAdd++
			return f.BTH.Opcode == wire.RCFetchAdd && f.AtomicETH.SwapOrAdd > 2
		}}},
		{"mixed", "not linearizable", tamper{all: true, in: func(f *wire.Frame) bool {
			f.Payload = append(f.Payload[:0], make([]byte, len(f.Payload))...)
			return f.BTH.Opcode == wire.RCWriteOnly && len(f.Payload) == 16
		}}},
		{"mixed", "not linearizable", tamper{all: true, out: func(f *wire.Frame) bool {
			f.AtomicAck++
			return f.BTH.Opcode == wire.RCAtomicAck && f.AtomicAck > 100
		}}},
	} {
		setup, err := findSetup(c.setup)
		if err != nil {
			t.Fatal(err)
		}
		e := newEnv(Scenario{}, 1, Options{Wrap: func(name string, n simnet.Node) simnet.Node {
			if name == "ms0" {
				bug := c.bug
				bug.Node = n
				return &bug
			}
			return n
		}})
		out := setup.judged(e, schedule{setup: c.setup})
		e.finish()
		if out.err == nil || !strings.Contains(out.err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.setup, out.err, c.want)
		}
	}
}

// Results are handled in the order of the list, not of their completion, and none after the end.
func TestInOrder(t *testing.T) {
	list := make([]int, 1000)
	for i := range list {
		list[i] = i
	}
	var got []int
	inOrder(len(list), func() bool { return len(got) == 700 }, func(i int) int { return 2 * i }, func(i, r int) {
		if r != 2*i {
			t.Errorf("%d: %d", i, r)
		}
		got = append(got, i)
	})
	if !slices.Equal(got, list[:700]) {
		t.Errorf("%d results", len(got))
	}
	inOrder(0, func() bool { return false }, func(i int) int { return i }, func(_, _ int) { t.Error("a result of nothing") })
}

// Invalid parameters of the search are refused; valid ones are in the variant's name.
func TestPlannedParams(t *testing.T) {
	base := mustFind(t, "planned")
	for _, c := range []struct {
		p    Params
		want string
	}{
		{Params{Setup: "moon"}, "no small setup"},
		{Params{Plan: "moon"}, "no small setup"},
		{Params{Depth: -1}, "positive"},
		{Params{Plan: "mixed", Depth: 1}, "--depth"},
		{Params{Plan: "mixed", Setup: "rules"}, "--setup"},
		{Params{Move: true}, "--move is not for"},
	} {
		if _, err := base.Vary(c.p); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.p.args(), err)
		}
	}
	s, err := base.Vary(Params{Plan: "mixed/drop@ms0-down.1"})
	if err != nil || s.Args(3) != "planned --plan mixed/drop@ms0-down.1 --seed 3" {
		t.Errorf("%q, %v", s.Args(3), err)
	}
	if r := s.Run(3, Options{}); r.Err != nil || r.Plan != "mixed/drop@ms0-down.1" || r.Events == 0 {
		t.Errorf("%+v", r)
	}
	if s, err = base.Vary(Params{Setup: "mixed", Depth: 1, Schedules: 20}); err != nil {
		t.Fatal(err)
	}
	r := s.Run(1, Options{})
	if r.Err != nil || len(r.Notes) != 1 || !strings.Contains(r.Notes[0], " 20 schedules") {
		t.Errorf("%v %v", r.Err, r.Notes)
	}
	r = s.Run(1, Options{Cancelled: func() bool { return true }})
	if !errors.Is(r.Err, simnet.ErrCancelled) {
		t.Errorf("a cancelled search: %v", r.Err)
	}
}
