package perf

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func TestValidateSaysWhatIsWrong(t *testing.T) {
	for _, tc := range []struct {
		c    Config
		want string
	}{
		{Config{Test: "write"}, "unknown test"},
		{Config{Test: AtomicBW, Type: "xor"}, "cas or faa"},
		{Config{Test: AtomicLat, Size: 16}, "8 bytes"},
		{Config{Test: WriteBW, Size: -1}, "size"},
		{Config{Test: WriteBW, Size: MaxSize + 1}, "size"},
		{Config{Test: WriteBW, Iters: -5}, "iters"},
		{Config{Test: WriteBW, Depth: MaxDepth + 1}, "depth"},
		{Config{Test: WriteBW, Path: Path{MTU: 1500}}, "mtu"},
		{Config{Test: WriteBW, Patience: -time.Second}, "negative"},
	} {
		err := tc.c.Validate()
		if !errors.Is(err, verbs.ErrInvalid) || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want one about %q", tc.c, err, tc.want)
		}
	}
	for _, test := range Tests() {
		if err := (&Config{Test: test}).Validate(); err != nil {
			t.Errorf("%s without anything else: %v", test, err)
		}
	}
}

// withDefaults keeps every number in its bounds, for any configuration.
func TestDefaultsAreInBounds(t *testing.T) {
	for _, test := range Tests() {
		for _, size := range []int{0, 1, 8, 4096, MaxSize} {
			for _, depth := range []int{0, 1, 7, MaxDepth} {
				for _, verify := range []bool{false, true} {
					c := Config{Test: test, Size: size, Depth: depth, Verify: verify, SignalEvery: 64}.withDefaults()
					if c.Depth < 1 || c.Depth > MaxDepth || c.SignalEvery < 1 || c.SignalEvery > c.Depth || c.Size < 1 || c.Iters < 1 {
						t.Errorf("%s size %d depth %d: %+v", test, size, depth, c)
					}
					p := plans[test](&c)
					if p.local > 4*maxBuffer || p.bytes > maxBuffer {
						t.Errorf("%s size %d depth %d: %d bytes here, %d there", test, size, depth, p.local, p.bytes)
					}
					if _, err := parseRequest(p.request.encode()); err != nil && p.request.mode != 0 {
						t.Errorf("%s size %d depth %d: its own request is refused: %v", test, size, depth, err)
					}
				}
			}
		}
	}
}

func TestErrorsSayWhatToLookAt(t *testing.T) {
	err := &CompletionError{Op: "write", Msg: 17, Status: verbs.RetryExcErr}
	if s := err.Error(); !strings.Contains(s, "write 17: transport retry counter exceeded; ") || !strings.Contains(s, "rdmalab") {
		t.Errorf("%q", s)
	}
	data := &DataError{Op: "read", Msg: 3, Offset: 40, Got: 1, Want: 2}
	if s := data.Error(); !strings.Contains(s, "read 3") || !strings.Contains(s, "byte 40") {
		t.Errorf("%q", s)
	}
}

func TestDiffLeavesOutWhatStoodStill(t *testing.T) {
	a := metrics.NIC{SentPkts: 5, RetransPkts: 2}
	b := metrics.NIC{SentPkts: 9, RetransPkts: 2}
	if d := diff(&a, &b); len(d) != 1 || d["sent_pkts"] != 4 {
		t.Errorf("%v", d)
	}
}

func TestText(t *testing.T) {
	for _, tc := range []struct {
		r    Result
		want []string
	}{
		{
			Result{Test: WriteBW, BW: &Bandwidth{Bytes: 65536, Iters: 2000, Peak: 300.5, Average: 200.25, MsgRate: 0.0032}, Verified: 7},
			[]string{"RDMA_Write BW Test", "#bytes     #iterations    BW peak[MiB/sec]    BW average[MiB/sec]   MsgRate[Mpps]", "300.50", "200.25", "0.003200", "verified: 7 bytes"},
		},
		{
			Result{Test: AtomicLat, Config: Config{Type: "cas"}, Lat: &Latency{Bytes: 8, Iters: 10, Typical: 4.5}, VerifiedAtomics: 10},
			[]string{"RDMA_Atomic Latency Test", "CAS", "t_typical[usec]", "99.9% percentile[usec]", "4.50", "10 atomics"},
		},
		{
			Result{From: "cn0", To: "ms0", Checks: []Check{{Name: "WRITE", OK: true}, {Name: "READ", Err: "gone"}}},
			[]string{"cn0 -> ms0  WRITE", "ok", "FAILED: gone"},
		},
		{
			Result{Test: RawBW, BW: &Bandwidth{Bytes: 64, Iters: 9}},
			[]string{"Raw Ethernet BW Test"},
		},
	} {
		var b strings.Builder
		if err := tc.r.WriteText(&b); err != nil {
			t.Fatal(err)
		}
		for _, w := range tc.want {
			if !strings.Contains(b.String(), w) {
				t.Errorf("no %q in\n%s", w, b.String())
			}
		}
	}
}
