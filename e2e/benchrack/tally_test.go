package main

import (
	"strings"
	"testing"
)

func TestRatiosAreRoundByRound(t *testing.T) {
	var tl tally
	for _, v := range [][2]float64{{100e6, 50e6}, {10e6, 20e6}, {400e6, 100e6}} { // the machine's speed changes
		tl.add("default/raw_8", "msgs/s", "", v[0])
		tl.add("default/write_8", "msgs/s", "default/raw_8", v[1])
	}
	if got := middle(tl.ratios(tl.row("default/write_8"))); got != 0.5 { // of the medians: 0.5 too, of the sums: 0.33
		t.Errorf("median of the ratios 0.5, 2 and 0.25 is %v", got)
	}
	var out strings.Builder
	tl.print(&out)
	if want := "default/write_8  3       50 M/s   20   100  0.50"; !strings.Contains(out.String(), want) {
		t.Errorf("no %q in\n%s", want, out.String())
	}
	b := string(tl.benchmarks())
	for _, want := range []string{"BenchmarkRack/default/raw_8 1 4e+08 msgs/s\n", "BenchmarkRack/default/write_8 1 2 ratio\n"} {
		if !strings.Contains(b, want) {
			t.Errorf("no %q in\n%s", want, b)
		}
	}
}

// A round that was interrupted has the base of a ratio, but not the measured value.
func TestRatiosOfAnUnfinishedRound(t *testing.T) {
	var tl tally
	tl.add("a/raw", "B/s", "", 8)
	tl.add("a/write", "B/s", "a/raw", 4)
	tl.add("a/raw", "B/s", "", 16)
	if got := tl.ratios(tl.row("a/write")); len(got) != 1 || got[0] != 0.5 {
		t.Errorf("ratios %v", got)
	}
	if got := tl.ratios(tl.row("a/raw")); got != nil {
		t.Errorf("a measure without a base has ratios %v", got)
	}
}

// A base of another rack, or one that comes later in the round, gives no ratio.
func TestBasesComeFirst(t *testing.T) {
	for _, r := range racks {
		seen := map[string]bool{}
		for _, m := range r.measures {
			if m.base != "" && !seen[m.base] {
				t.Errorf("%s/%s: base %s does not come before it", r.name, m.name, m.base)
			}
			seen[m.name] = true
		}
	}
}

func TestFiguresAreRead(t *testing.T) {
	for _, c := range []struct {
		read func([]byte) (float64, error)
		json string
		want float64
	}{
		{messages, `{"bw": {"msgRateMpps": 0.25}}`, 250000},
		{volume, `{"bw": {"averageMiBps": 2}}`, 2 << 20},
		{median, `{"lat": {"typicalUsec": 8}}`, 8e-6},
		{throughput, `{"ops": 10, "opsPerSecond": 3500}`, 3500},
	} {
		if got, err := c.read([]byte(c.json)); err != nil || got != c.want {
			t.Errorf("%s: %v, %v", c.json, got, err)
		}
		for _, bad := range []string{`{}`, `{"lat": 1`, `{"ops": 10, "failed": 1}`} {
			if v, err := c.read([]byte(bad)); err == nil {
				t.Errorf("%s: %v without an error", bad, v)
			}
		}
	}
}
