//go:build !race

package nic

// raceEnabled is true if the race detector is compiled in.
const raceEnabled = false
