package statestore

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// tick lets time pass to the machine's deadline, at most by d.
func (b *bed) tick(d time.Duration) {
	end := b.now.Add(d)
	for b.m.Deadline() <= end {
		b.now = max(b.now, b.m.Deadline())
		b.step(b.m.Tick)
	}
	b.now = end
}

// Within a window amounts are added up by counter, although FETCH_ADDs may be sent. When the window
// ends, one FETCH_ADD for each counter leaves; what comes then waits for the next window.
func TestWindowCombines(t *testing.T) {
	b := newBed(t, "per=address slots=64 depth=4 combine=100us")
	b.attach(16, 0)
	for i := range 50 {
		b.observe(uint64(8 * (i % 5)))
	}
	if len(b.sentAdds) != 0 {
		t.Fatalf("%d FETCH_ADDs within the window", len(b.sentAdds))
	}
	b.tick(60 * time.Microsecond)
	if len(b.sentAdds) != 4 { // as many as the depth allows
		t.Fatalf("%d FETCH_ADDs after the window", len(b.sentAdds))
	}
	b.observe(0)
	b.answer(0, wire.AckNoCredits)
	if len(b.sentAdds) != 5 {
		t.Fatalf("%d FETCH_ADDs after an answer", len(b.sentAdds))
	}
	for psn := wire.PSN(1); psn < 5; psn++ {
		b.answer(psn, wire.AckNoCredits)
	}
	for _, a := range b.sentAdds {
		if a.SwapOrAdd != 10 {
			t.Errorf("%d is added", a.SwapOrAdd)
		}
	}
	if len(b.sentAdds) != 5 {
		t.Fatalf("%d FETCH_ADDs within the second window", len(b.sentAdds))
	}
	b.tick(110 * time.Microsecond)
	b.answer(5, wire.AckNoCredits)
	if s := b.m.Stats(); len(b.sentAdds) != 6 || b.sentAdds[5].SwapOrAdd != 1 || s.Applied != 51 {
		t.Errorf("%+v; %+v", b.sentAdds, s)
	}
	if b.m.Deadline() != clock.Never {
		t.Errorf("something is due at %v, although nothing waits", b.m.Deadline())
	}
}

// A rule that has no window any more sends what waits. A connection that comes after the end of a
// window sends at once.
func TestWindowGoesAway(t *testing.T) {
	const rule = "server=ms0 action=count store=ms1 per=address slots=64 depth=4"
	b := newBed(t, "per=address slots=64 depth=4 combine=100us")
	b.observe(0)
	b.tick(200 * time.Microsecond)
	b.attach(16, 0)
	if len(b.sentAdds) != 1 {
		t.Fatalf("%d FETCH_ADDs when the connection comes", len(b.sentAdds))
	}
	b.answer(0, wire.AckNoCredits)
	b.observe(8)
	set, err := ruleSet(t, rule)
	if err != nil {
		t.Fatal(err)
	}
	b.step(func(*pipeline.Ctx) { b.m.SetRules(set) })
	b.tick(100 * time.Microsecond)
	b.answer(1, wire.AckNoCredits)
	if s := b.m.Stats(); len(b.sentAdds) != 2 || s.Applied != 2 {
		t.Errorf("%d FETCH_ADDs, %+v", len(b.sentAdds), s)
	}
}

func TestCombineRules(t *testing.T) {
	for text, want := range map[string]string{
		"store=ms1 combine=10ms":               "",
		"store=ms1 combine=11ms":               "no time from 0 to 10ms",
		"store=ms1 combine=-1us":               "no time",
		"store=ms1 combine=soon":               "no time",
		"store=ms1 combine=1ms mode=published": "not by time",
		"combine=1ms":                          "no meaning without store",
	} {
		_, err := ruleSet(t, "server=ms0 action=count "+text)
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
	_, err := ruleSet(t, "id=a server=ms0 action=count store=ms2", "id=b server=ms1 action=count store=ms2 at=8192 combine=1ms")
	if err == nil || !strings.Contains(err.Error(), "combine, cap and dscp must be the same") {
		t.Error(err)
	}
}
