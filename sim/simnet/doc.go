// Package simnet is a deterministic rack in memory: machines, links and virtual time.
//
// A machine is a value of type Node, such as a NIC engine or a switch pipeline. Links join
// machines. A link has a delay, a rate and a bounded queue, and asks for a fault verdict on each
// frame. Application threads are coroutines (Proc). Exactly one piece of code runs at any time. So
// a run depends only on its inputs, and the same seed repeats it event by event.
//
// If several things are due at the same time, they happen in this order: threads that became
// runnable, in wake order; then frames and scheduled calls, in push order; then node deadlines, by
// node; then thread deadlines, by thread.
//
// The package starts no goroutine, reads no clock and draws no random number. Every run is bounded
// by Config.MaxEvents and Config.MaxTime. When a bound is reached, the error is a *StuckError,
// which names the threads that still wait.
package simnet
