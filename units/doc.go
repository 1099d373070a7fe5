// Package units reads and writes sizes, rates, probabilities, durations and names as people type them in
// rack files, rules and flags. It holds no state and does no I/O.
package units
