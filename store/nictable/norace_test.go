//go:build !race

package nictable_test

const raceEnabled = false
