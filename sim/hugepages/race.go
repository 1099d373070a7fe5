//go:build race

package hugepages

// raced: the race detector keeps notes of each byte that is given out, also of those that are only reserved.
const raced = true
