package nic

import (
	"math"
	"strings"
	"testing"
	"time"
)

// Validate refuses values under which some operations can never succeed.
func TestConfigRefuses(t *testing.T) {
	for name, tc := range map[string]struct {
		change func(c *Config)
		want   string
	}{
		"as it is":                 {func(*Config) {}, ""},
		"a threshold that fits":    {func(c *Config) { c.Threshold = 4096 }, ""},
		"a small threshold":        {func(c *Config) { c.Threshold = 4095 }, "at least 4096"},
		"a small window":           {func(c *Config) { c.Window = 4095 }, "at least 4096"},
		"4 RTT overflow to 0":      {func(c *Config) { c.RTT = 1 << 62 }, "at most 1s"},
		"2 RTT overflow":           {func(c *Config) { c.RTT, c.Timeout = 1<<62, time.Second }, "at most 1s"},
		"a dispatch without end":   {func(c *Config) { c.DispatchTimeout = math.MaxInt64 }, "at most 1s"},
		"a long time-out":          {func(c *Config) { c.Timeout = 2 * time.Second }, "at most 1s"},
		"a time-out below its sum": {func(c *Config) { c.Timeout = 1 }, "give at least that"},
	} {
		c := configOf(1)
		tc.change(&c)
		if err := c.Validate(); tc.want == "" && err != nil || tc.want != "" && (err == nil || !strings.Contains(err.Error(), tc.want)) {
			t.Errorf("%s: %v, want %q", name, err, tc.want)
		}
	}
}
