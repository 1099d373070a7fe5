package exercise

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/capture/dump"
	"github.com/rdmalab/rdmalab/softrnic/capture/ladder"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/topo/rack"
)

// Every exercise has a text with a title, a task that says how it is checked, and hints; the texts name all answers.
func TestTexts(t *testing.T) {
	for _, e := range All() {
		text, err := e.Plain()
		if err != nil {
			t.Fatal(err)
		}
		if text.Title == "" || len(text.Hints) < 2 || !strings.Contains(text.Task, "exercise "+e.Name+" --check") {
			t.Errorf("%s: %+v", e.Name, text)
		}
		for _, key := range e.Answers {
			if !strings.Contains(text.Task, "\n  "+key+" ") || !strings.Contains(text.Task, "--answer "+key+"=") {
				t.Errorf("%s: the task does not ask for %s", e.Name, key)
			}
		}
		for _, part := range append(text.Hints, text.Task) {
			for line := range strings.SplitSeq(part, "\n") {
				if strings.Contains(line, "<no value>") || len(line) > 160 {
					t.Errorf("%s: %q", e.Name, line)
				}
			}
		}
	}
}

func TestAnswers(t *testing.T) {
	if err := lostPacket.CheckAnswers(map[string]string{"lost": "1"}); err != nil {
		t.Error(err)
	}
	if err := lostPacket.CheckAnswers(map[string]string{"rkey": "1"}); err == nil || !strings.Contains(err.Error(), "lost noticed again") {
		t.Error(err)
	}
	if err := contendedLock.CheckAnswers(map[string]string{"rkey": "1"}); err == nil {
		t.Error("an answer that is not asked for is taken")
	}
	for text, want := range map[string]bool{"17": true, "0x11": true, "18": false, "": false, "seventeen": false} {
		r := Report{answers: map[string]string{"lost": text}}
		if r.number("lost", 17, "look again"); r.Solved() != want {
			t.Errorf("%q: %+v", text, r)
		}
	}
	if (&Report{}).Solved() {
		t.Error("nothing was checked, and the exercise is solved")
	}
}

// Exercises look at one switch and its links: a rack with a fabric is refused.
func TestFabricIsRefused(t *testing.T) {
	for _, fabric := range []*rackfile.Fabric{nil, {}} {
		spec := &rackfile.Rack{Name: "r", Fabric: fabric, Hosts: []rackfile.Host{{Name: "cn0", Role: rackfile.Compute}, {Name: "ms0", Role: rackfile.Memory}}}
		_, err := contendedLock.On(&rack.Rack{Spec: spec})
		if refused := err != nil && strings.Contains(err.Error(), "fabric"); refused != (fabric != nil) {
			t.Errorf("fabric %v: %v", fabric, err)
		}
	}
}

func TestHealed(t *testing.T) {
	sent := func(psn int32, why ladder.Why, cause, packets int) ladder.Row {
		return ladder.Row{Opcode: wire.RCWriteMiddle, QPN: 7, PSN: psn, Packets: packets, Resend: ladder.Resend{Why: why, Cause: cause}}
	}
	lost := sent(5, ladder.Once, 0, 1)
	lost.Lost = true
	ack := ladder.Row{Opcode: wire.RCAck, QPN: 9, Lost: true, Packets: 1}
	rows := []ladder.Row{sent(0, ladder.Once, 0, 5), ack, lost, sent(6, ladder.Once, 0, 3), sent(5, ladder.Asked, 12, 1), sent(6, ladder.Behind, 13, 3)}
	if got, noticed, again := healed(rows); got == nil || got.PSN != 5 || noticed != 12 || again != 4 {
		t.Errorf("%+v, noticed by %d, %d again", got, noticed, again)
	}
	if got, _, _ := healed(rows[:4]); got != nil {
		t.Errorf("nothing was sent again, and %+v has healed", got)
	}
}

// read returns a READ request on its way to the switch; dropped says that the switch's program drops it.
func read(dropped bool) *dump.Record {
	r := &dump.Record{Verdict: dump.OK}
	r.Name = "cn0 up"
	r.Frame.BTH.Opcode, r.Frame.RETH.RKey = wire.RCReadRequest, 0xabc
	if dropped {
		r.Comments = []string{"dropped by the switch: hundredth READ"}
	}
	return r
}

// A program is right if it drops every hundredth READ, whatever number it began with, and nothing else.
func TestProgramIsJudged(t *testing.T) {
	for name, c := range map[string]struct {
		drops func(n int) bool
		other bool // a WRITE is dropped
		want  bool
	}{
		"every hundredth":                {func(n int) bool { return n%100 == 0 }, false, true},
		"from another number":            {func(n int) bool { return n%100 == 37 }, false, true},
		"every fiftieth":                 {func(n int) bool { return n%50 == 0 }, false, false},
		"none":                           {func(int) bool { return false }, false, false},
		"the first of them not":          {func(n int) bool { return n%100 == 0 && n > 100 }, false, false},
		"the last of them not":           {func(n int) bool { return n%100 == 0 && n < 300 }, false, false},
		"one more":                       {func(n int) bool { return n%100 == 0 || n == 150 }, false, false},
		"every hundredth, and the WRITE": {func(n int) bool { return n%100 == 0 }, true, false},
	} {
		q := &requests{byKey: map[uint32]uint64{}}
		write := read(c.other)
		write.Frame.BTH.Opcode = wire.RCWriteOnly
		down := read(false)
		down.Name = "cn0 down"
		for _, rec := range []*dump.Record{write, down} {
			if err := q.add(rec); err != nil {
				t.Fatal(err)
			}
		}
		for n := 1; n <= 353; n++ {
			if err := q.add(read(c.drops(n))); err != nil {
				t.Fatal(err)
			}
		}
		r := &Report{}
		if q.judge(r); r.Solved() != c.want {
			t.Errorf("%s: %+v", name, r.Findings)
		}
		if q.reads != 353 || q.byKey[0xabc] != 354 {
			t.Errorf("%s: %d READs, %v", name, q.reads, q.byKey)
		}
	}
}

func TestCountersAreJudged(t *testing.T) {
	q := &requests{byKey: map[uint32]uint64{0xabc: 354}, key: 0xabc}
	for name, c := range map[string]struct {
		after map[string]uint64
		want  bool
	}{
		"right":          {map[string]uint64{"seen": 400, "rkey-0xabc": 364}, true},
		"upper case":     {map[string]uint64{"0xABC": 354}, true},
		"too few":        {map[string]uint64{"rkey-0xabc": 363}, false},
		"no such key":    {map[string]uint64{"rkey-0xabd": 364}, false},
		"a longer key":   {map[string]uint64{"rkey-0xabc5": 354}, false},
		"leading zeros":  {map[string]uint64{"rkey-0x00000abc": 354}, true},
		"one of two":     {map[string]uint64{"bytes-0xabc": 9000, "rkey-0xabc": 364, "writes-0xabc": 1}, true},
		"counts nothing": {nil, false},
	} {
		r := &Report{}
		q.judgeCounters(r, map[string]uint64{"rkey-0xabc": 10}, c.after)
		if r.Solved() != c.want {
			t.Errorf("%s: %+v", name, r.Findings)
		}
	}
}
