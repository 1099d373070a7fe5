//go:build !race

package hugepages

// raced is whether the program has the race detector.
const raced = false
