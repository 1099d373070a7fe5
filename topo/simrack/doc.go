// Package simrack builds a whole rack of a spec.Rack in memory: a NIC engine for each host, the
// switch pipeline with its program, links with the rack's faults, and applications as coroutines
// over the same verbs and rdmacm that they use on a real rack. Time is virtual; a seed decides
// everything.
//
// The second shell of package verbsengine is here: Enter and Leave are a step of the host's node,
// waiting parks the coroutine, and the network resumes it when the engine's Activity has changed
// and its condition holds.
//
// Crashes, cuts and restarts are methods; a scenario calls them at virtual times through Rack.At.
package simrack
