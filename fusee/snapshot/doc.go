// Package snapshot decides between writers of a replicated word: SNAPSHOT, the replication of
// FUSEE's index (FAST 2023, §4.3). A word has a primary and backups in different memory servers.
// Each writer swaps its new value into the backups, from the old value that it has read in the
// primary; what the swaps have found decides which writer has won, the same for all of them and
// without another message. The winner makes the backups alike, and swaps the primary last.
//
//	Rule 1  all backups have one value: its writer wins
//	Rule 2  more than half of the backups have one value: its writer wins
//	Rule 3  otherwise, if the primary still has the old value: the smallest value wins
//
// The values have the order in which the primary has had them. A loser waits until the primary has
// changed: it is in the order immediately before the winner that has replaced the value which it
// has read.
//
// No two writers may ever have the same new value. Otherwise two of them find it in the backups and
// both win; the test of this package shows it. The published DELETE, which writes 0, breaks that.
//
// A Writer is a value without I/O: its owner carries out the action that each method returns, and
// reports what it has found. After a failure the owner may swap again, because the new value shows
// whether the first swap was executed. With Down the writer ends in Failed: it does not know the
// outcome, and other writers of the word may wait for it until a master has decided.
package snapshot
