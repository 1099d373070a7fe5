// Package sim is a deterministic rack in memory: machines, links and virtual time.
//
// A machine is a value of type Node, such as a NIC engine or a switch pipeline. Links join
// machines, with a delay, a rate, a bounded queue and a fault verdict for each frame. Application
// threads are coroutines (Proc): exactly one piece of code runs at any time, so a run depends only
// on its inputs, and one seed replays it event by event.
//
// Several things that are due at the same instant happen in this order: threads that became
// runnable, in wake order; then frames and scheduled calls, in push order; then node deadlines, by
// node; then thread deadlines, by thread.
//
// The package starts no goroutine, reads no clock and draws no random number. Every run is bounded
// by Config.MaxEvents and Config.MaxTime. When a bound is reached, the error is a *StuckError that
// names the threads which still wait.
package sim
