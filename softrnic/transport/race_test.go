//go:build race

package transport

// raceEnabled shortens tests that run many seeds.
const raceEnabled = true
