package perf

import (
	"strings"
	"testing"
	"time"
)

func TestSpanIsForTestsOverTheConnection(t *testing.T) {
	for _, c := range []struct {
		config Config
		want   string
	}{
		{Config{Test: WriteBW}, ""},
		{Config{Test: SendLat}, ""},
		{Config{Test: Locks}, ""},
		{Config{Test: ReadBW, Verify: true}, ""},
		{Config{Test: WriteBW, Verify: true}, "cannot verify"},
		{Config{Test: Soak}, "give the number"},
		{Config{Test: SendBW, Queues: Queues{Conn: ConnUD}}, "give the number"},
		{Config{Test: SendBW, Queues: Queues{QPs: 2}}, "give the number"},
	} {
		c.config.Span = time.Second
		if err := c.config.Validate(); (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%+v: %v, want %q", c.config, err, c.want)
		}
	}
}

// The sum has all messages, in the longest time of a part, so it never counts more than was there.
func TestSum(t *testing.T) {
	part := func(n int, took time.Duration) *Result {
		return &Result{Elapsed: took, BW: &Bandwidth{Bytes: 1 << 20, Iters: n, Peak: 10}, Verified: 1}
	}
	got := Sum([]*Result{part(10, time.Second), part(30, 2*time.Second)})
	if got.BW.Iters != 40 || got.BW.Average != 20 || got.BW.Peak != 20 || got.BW.MsgRate != 20e-6 || got.Elapsed != 2*time.Second || got.Verified != 2 {
		t.Errorf("%+v %+v", got, got.BW)
	}
}

func TestTableOfSizes(t *testing.T) {
	var list []*Result
	for _, n := range []int{2, 4} {
		list = append(list, &Result{Test: WriteBW, From: "cn0", To: "ms0", Both: true, BW: &Bandwidth{Bytes: n, Iters: 5, Average: 1000}})
	}
	var out strings.Builder
	if err := WriteTable(&out, list, Rates()[2]); err != nil {
		t.Fatal(err)
	}
	got := out.String()
	if strings.Count(got, "Bidirectional BW Test") != 1 || strings.Count(got, "BW average[Gb/sec]") != 1 || strings.Count(got, "8.388608") != 2 || strings.Count(got, rule) != 3 {
		t.Error(got)
	}
}
