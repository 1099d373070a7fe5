//go:build race

package transport

// raceEnabled shortens what only needs many seeds.
const raceEnabled = true
