// Package lease has what a store on passive memory needs to take nodes, locks or blocks back from a
// client that has died. A client that is silent is not always dead. Its host may have stopped with
// a request ready in its NIC. So the end of a lease alone does not prove that the client is dead.
// The package has three parts:
//
//   - Terms and Term are the two ends of a lease that a server grants and a client holds.
//   - Watch is a lease without a server: a word in remote memory that its owner changes, or must
//     release. A client that has seen the same word for the time of the lease takes the word's
//     owner for dead.
//   - Fencer makes the memory servers end the connections of an owner. When that is done, no
//     request of the owner can arrive any more, and other clients can get its nodes, locks and
//     blocks.
//
// # Guarantees
//
// Between the end of a client's Term and the time from which the server's Terms report the same
// lease as Over, at least the grace passes. The client counts from the time at which it sent the
// request, the server from the time at which it received it. The two clocks need not show the same
// time, but must run at the same rate.
//
// A Watch never says that a word was unchanged for longer than it was: it counts from the time at
// which the first answer had arrived to the time at which the last request was sent. A word that
// returns to an earlier value hides its changes, so no value of a word may come again while a
// client watches the word.
//
// A Fence is over when every memory server has executed it, except for the servers that Leave has
// named. After a fence by Add the owner can still connect again. It must not do so before it has
// another number or another lease. After a fence by AddTo it cannot connect again, unless the
// server restarts and forgets the owners.
//
// Times are durations of the runtime's clock; zero is not replaced by a default. Terms, Term and
// Watch have no lock: one thread at a time uses each. Any thread may use a Fencer.
package lease
