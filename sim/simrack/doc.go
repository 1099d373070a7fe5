// Package simrack builds the rack of a rackfile.Rack in memory: a NIC engine for each host, the switch
// pipeline with its program, links with the rack's faults, and applications. The applications are
// coroutines that use the same verbs and rdmacm as on a real rack. Time is virtual, and one seed
// decides all random choices.
//
// Package verbsengine needs a shell: the code around the NIC's engine that has a clock and threads.
// This package has the shell for virtual time; package device has the one for a rack. Between the
// shell's methods Enter and Leave, the host's engine does one step. A thread that waits parks its
// coroutine. It continues when the engine's Activity has changed and the thread's condition holds.
//
// Crashes, cuts and restarts are methods. A scenario calls them at virtual times by Rack.At.
package simrack
