// Package executor is the software of the paper 1RMA above the NIC, as a sans-I/O machine: it moves
// any number of bytes by operations of at most 4096, decides when each is issued, and what is tried
// again. The paper calls the slots and completions of a process a CommandPortal (nic.Portal) and this
// part the CommandExecutor.
//
// Congestion control is the paper's algorithm 1. A NIC's executor has one local window, which follows
// the time that commands wait for the solicitation window (the issue delay), and one remote window
// for each peer and direction, which follows the rest of their time. The smaller one bounds the
// operations in flight, and sets their pace: one in RTT / window, so that a window below 1 means
// pauses. The constants are the paper's; targets, bounds and the first window, which it does not
// give, are in Config.
//
// Transfers to one peer take turns, an operation each, and so do peers.
//
// The owner calls Tick when the NIC's Activity has changed, when Deadline has come, and after Start.
// Tick issues commands, so the NIC's deadline is due afterwards.
package executor
