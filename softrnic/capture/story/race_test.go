//go:build race

package story

const raceEnabled = true
