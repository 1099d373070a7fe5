//go:build race

package nictable_test

// raceEnabled shortens tests with many keys.
const raceEnabled = true
