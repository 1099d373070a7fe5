// Package sim is a deterministic rack in memory: machines, links and virtual time.
//
// A machine is any Node; a NIC engine and a switch pipeline both are. Links join them, with delay,
// rate, a bounded queue and a fault verdict for each frame. Application threads are coroutines
// (Proc): exactly one piece of code runs at any time, so a run is a function of its inputs, and one
// seed replays it event by event.
//
// Order within one instant: threads that became runnable, in wake order; then frames and scheduled
// calls, in push order; then node deadlines, by node; then thread deadlines, by thread. Nothing
// else decides.
//
// The package has no goroutine of its own, reads no clock and draws no random number. Every run is
// bounded by Config.MaxEvents and Config.MaxTime; a bound that is reached is a *StuckError that
// names the threads which still wait.
package sim
