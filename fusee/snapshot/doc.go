// Package snapshot decides between the writers of a replicated word by SNAPSHOT, the replication of
// FUSEE's index (FAST 2023, §4.3). A word has a primary and backups in different memory servers.
// Each writer swaps its new value into the backups, in place of the old value that it has read in
// the primary. The values that these swaps have found decide which writer has won, in the same way
// for all writers and without another message. The winner makes the backups equal, and swaps the
// primary last.
//
//	Rule 1  all backups have one value: its writer wins
//	Rule 2  more than half of the backups have one value: its writer wins
//	Rule 3  otherwise, if the primary still has the old value: the smallest value wins
//
// The order of the writes is the order in which the primary has had their values. A loser waits
// until the primary has changed: in the order it comes immediately before the winner that has
// replaced the value which the loser has read.
//
// Two writers must never have the same new value. Otherwise both find it in the backups and both
// win; the test of this package shows it. The published DELETE writes 0, so it breaks this rule.
//
// A Writer is a value without I/O. Its owner carries out the action that each method returns, and
// reports what it has found. After a failure the owner may swap again, because the new value shows
// whether the first swap was executed. After Down the writer is in the state Failed: its outcome is
// unknown, and other writers of the word may wait for it until a master has decided.
package snapshot
