package units

import (
	"strings"
	"testing"
	"time"
)

func TestUnits(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "8": 8, "64B": 64, "64KiB": 64 << 10, "1.5MiB": 3 << 19, "2GiB": 2 << 30, "4 KiB": 4096,
		"": -1, "KiB": -1, "64K": 64 << 10, "1.5m": 3 << 19, "1G": 1 << 30, "1KB": -1, "64kb": -1, "1MB": -1, "64kib": -1, "1T": -1, "-1": -1, "0.5": -1, "1e3": -1, "1..2KiB": -1, "99999999999GiB": -1, "0x10": -1,
	} {
		if got, err := ParseSize(s); want >= 0 && (err != nil || got != want) || want < 0 && err == nil {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]int64{
		"1Gbit": 1e9, "2.5Gbit": 25e8, "100Mbit": 1e8, "8Kbit": 8000, "1Tbit": 1e12, "5bit": 5,
		"1gbit": 1e9, "10G": 1e10, "100m": 1e8, "1": -1, "1GB": -1, "Gbit": -1, "1Gbps": -1, "1Gbit/s": -1, "G": -1, "-1Gbit": -1,
	} {
		if got, err := ParseRate(s); want >= 0 && (err != nil || got != want) || want < 0 && err == nil {
			t.Errorf("ParseRate(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]float64{
		"10%": 0.1, "100%": 1, "0.1": 0.1, "1": 1, "1e-3": 1e-3, "0.5%": 0.005,
		"": -1, "%": -1, "0": -1, "101%": -1, "-1%": -1, "1.1": -1, "NaN": -1, "Inf": -1, "10 %": -1, "0x1p-2": -1,
	} {
		if got, err := ParseProbability(s); want >= 0 && (err != nil || got != want) || want < 0 && err == nil {
			t.Errorf("ParseProbability(%q) = %v, %v; want %v", s, got, err, want)
		}
	}
	if d, err := ParseDuration("1m30s"); err != nil || d != 90*time.Second {
		t.Errorf("ParseDuration = %v, %v", d, err)
	}
}

// What other tools write is read, or the error says what to write.
func TestSpellingsOfOtherTools(t *testing.T) {
	size := func(s string) error { _, err := ParseSize(s); return err }
	rate := func(s string) error { _, err := ParseRate(s); return err }
	span := func(s string) error { _, err := ParseDuration(s); return err }
	for _, c := range []struct {
		parse   func(string) error
		s, want string
	}{
		{size, "1MB", `"1MB" is no size: write 1MiB (units of 1024), or the number of bytes`},
		{size, "64 kb", "write 64KiB"},
		{size, "xMB", "write it like"},
		{rate, "1Gbps", `"1Gbps" is no rate: write 1Gbit (bits a second)`},
		{rate, "2.5gbit/s", "write 2.5Gbit"},
		{rate, "125MBps", `"125MBps" is no rate: write 1000Mbit (bits a second)`},
		{rate, "1.25 GB/s", "write 10Gbit"},
		{rate, "xGB/s", "write it like"},
		{size, "2Mi", "write 2MiB"},
		{rate, "1e9", "write 1Gbit"},
		{rate, "15e5", "write 1500Kbit"},
		{size, "1e6", "write 1000000, or like"},
		{span, "10msec", `"10msec" is no duration: write 10ms`},
		{span, "2 secs", "write 2s"},
		{span, "10", "write it like"},
	} {
		if err := c.parse(c.s); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %s", c.s, err, c.want)
		}
	}
}

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 7: "7B", 1024: "1KiB", 1536: "1536B", 64 << 20: "64MiB", 3 << 30: "3GiB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %s, want %s", n, got, want)
		}
	}
}
