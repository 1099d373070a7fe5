// Package executor is the software above the NIC in the paper 1RMA, as a sans-I/O machine. It moves
// any number of bytes by operations of at most 4096 bytes. It decides when each operation is
// issued, and which ones are tried again. The paper calls the slots and completions of a process a
// CommandPortal (nic.Portal), and this part the CommandExecutor.
//
// A Policy sets the congestion windows; Executor.Use replaces it while transfers go on, and Register adds
// one of another module. The default is algorithm 1 of the paper. An executor has one local window. This window
// follows the issue delay: the time that commands wait for the NIC's solicitation window. The
// executor also has one remote window for each peer and direction. A remote window follows the
// time that commands take after their issue delay. The local window bounds all operations of the
// executor in flight, a remote window those of its peer and direction. The smaller of the two also
// sets the pace for this peer and direction: one operation in RTT / window. So a window below 1
// means pauses between operations. The constants are those of the paper. The paper does not give
// the targets, the bounds and the first value of a window; they are parameters (Config).
//
// Transfers to the same peer in the same direction take turns, one operation each, and so do the
// pairs of peer and direction.
//
// The owner calls Tick when the NIC's Activity has changed, when Deadline has come, and after Start
// and Cancel. Tick issues commands. So the owner must then call Tick of the NIC, if the NIC's
// deadline is due.
package executor
