package cli

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/perf"
)

func TestPerfFlagsAreChecked(t *testing.T) {
	for _, tc := range []struct {
		f    perfFlags
		want string
	}{
		{perfFlags{from: "cn0", to: "ms0", config: perf.Config{Test: "write"}}, "write_bw"},
		{perfFlags{from: "cn0", to: "cn0", config: perf.Config{Test: perf.WriteBW}}, "two hosts"},
		{perfFlags{from: "cn0", to: "ms0", size: "64XB", config: perf.Config{Test: perf.WriteBW}}, "--size"},
		{perfFlags{from: "cn0", to: "ms0", size: "1GiB", config: perf.Config{Test: perf.WriteBW}}, "--size 1GiB"},
		{perfFlags{from: "cn0", to: "ms0", inline: "-1", config: perf.Config{Test: perf.WriteBW}}, "--inline"},
		{perfFlags{from: "cn0", to: "ms0", size: "16", config: perf.Config{Test: perf.AtomicBW}}, "8 bytes"},
	} {
		if err := tc.f.check(); err == nil || !strings.Contains(err.Error(), tc.want) {
			t.Errorf("%+v: error %v, want one about %q", tc.f, err, tc.want)
		}
	}
	f := perfFlags{from: "cn0", to: "ms0", size: "64KiB", inline: "64", config: perf.Config{Test: perf.WriteBW}}
	if err := f.check(); err != nil || f.config.Size != 65536 || f.config.Inline != 64 || f.config.To != "ms0" {
		t.Errorf("%v: %+v", err, f.config)
	}
	for _, raw := range []string{perf.RawBW, perf.RawLat} {
		f := perfFlags{from: "cn0", to: "ms0", config: perf.Config{Test: raw}}
		if err := f.check(); err != nil {
			t.Errorf("%s: %v", raw, err)
		}
	}
}
