//go:build !race

package story

const raceEnabled = false
