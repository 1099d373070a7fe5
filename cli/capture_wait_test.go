package cli

import (
	"testing"
	"time"
)

// A capture without a limit of time says what it waits for.
func TestCaptureSaysWhatItWaitsFor(t *testing.T) {
	for _, c := range []struct {
		flags captureFlags
		links []string
		want  string
	}{
		{captureFlags{}, nil, "capturing all links until it is interrupted (Ctrl-C); --for limits the time"},
		{captureFlags{count: 1}, []string{"cn0"}, "capturing cn0 until it has 1 packet, or is interrupted (Ctrl-C); --for limits the time"},
		{captureFlags{count: 20}, []string{"cn0", "ms0"}, "capturing cn0, ms0 until it has 20 packets, or is interrupted (Ctrl-C); --for limits the time"},
		{captureFlags{count: 20, lasting: time.Second}, nil, ""},
	} {
		if got := c.flags.waits("capturing", c.links); got != c.want {
			t.Errorf("%+v: %q, want %q", c.flags, got, c.want)
		}
	}
}

// --duration is --for, as in other commands.
func TestCaptureDuration(t *testing.T) {
	for _, flag := range []string{"--for", "--duration"} {
		cmd := captureCmd()
		if err := cmd.ParseFlags([]string{flag, "3s"}); err != nil || cmd.Flag("for").Value.String() != "3s" {
			t.Errorf("%s 3s: %v, %v", flag, cmd.Flag("for").Value, err)
		}
	}
}
