// Package contention has clients for experiments in which many clients use a few 64-bit words of a
// memory server. A Swapper makes CAS after CAS on one word. A Locker takes a lock by CAS and then
// releases it. The clients use only verbs, so the host daemon and the simulator run the same code.
// Loop drives the clients of one thread, each with one operation in flight.
package contention
