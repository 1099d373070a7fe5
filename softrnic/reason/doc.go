// Package reason has the reasons why work requests fail and why packets are sent again: their
// numbers, which completions have as VendorErr, what a queue pair notes about each case, and the
// sentences for people.
//
// A queue pair keeps its newest notes in a Notes value. It makes one when it retransmits, refuses or
// fails: a packet that is handled as usual costs nothing. The package reads no clock and takes no
// lock; the owner of a queue pair copies its notes.
package reason
