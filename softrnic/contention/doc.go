// Package contention has the clients of experiments in which many clients work on few 64-bit words
// of a memory server: CAS of one word (Swaps), and locks that are taken by CAS and released
// (Locks). The clients use only verbs, so that the host daemon and the simulator run the same ones.
// Loop drives the clients of one thread, each with one operation in flight.
package contention
