package units

import (
	"testing"
	"time"
)

func TestUnits(t *testing.T) {
	for s, want := range map[string]int64{
		"0": 0, "8": 8, "64B": 64, "64KiB": 64 << 10, "1.5MiB": 3 << 19, "2GiB": 2 << 30, "4 KiB": 4096,
		"": -1, "KiB": -1, "1KB": -1, "64k": -1, "-1": -1, "0.5": -1, "1e3": -1, "1..2KiB": -1, "99999999999GiB": -1, "0x10": -1,
	} {
		if got, err := ParseSize(s); want >= 0 && (err != nil || got != want) || want < 0 && err == nil {
			t.Errorf("ParseSize(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for s, want := range map[string]int64{
		"1Gbit": 1e9, "2.5Gbit": 25e8, "100Mbit": 1e8, "8Kbit": 8000, "1Tbit": 1e12, "5bit": 5,
		"1": -1, "1GB": -1, "Gbit": -1, "1gbit": -1, "-1Gbit": -1,
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

func TestFormatSize(t *testing.T) {
	for n, want := range map[int64]string{0: "0B", 7: "7B", 1024: "1KiB", 1536: "1536B", 64 << 20: "64MiB", 3 << 30: "3GiB"} {
		if got := FormatSize(n); got != want {
			t.Errorf("FormatSize(%d) = %s, want %s", n, got, want)
		}
	}
}
