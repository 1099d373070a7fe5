package main

import (
	"testing"
	"time"
)

// A rate is that of the half of the frames that took the shortest time.
func TestFastestHalf(t *testing.T) {
	at := func(ms, n int) sample { return sample{time.Unix(1, 0).Add(time.Duration(ms) * time.Millisecond), n} }
	got, err := fastestHalf([]sample{at(0, 0), at(500, 10), at(600, 100), at(700, 500), at(800, 900), at(900, 950), at(5000, 1000)})
	if err != nil || got < 3999 || got > 4001 {
		t.Errorf("%g: %v", got, err)
	}
	for _, few := range [][]sample{nil, {at(0, 5)}, {at(0, 0), at(9, 5)}} {
		if got, err := fastestHalf(few); err == nil {
			t.Errorf("%v: %g", few, got)
		}
	}
}
