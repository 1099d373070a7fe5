// Package cost models the time that NICs, links, a switch and a client's processor take, so that a
// run in virtual time has the pace of measured hardware.
//
// A Model consists only of figures: rates, latencies, sizes, each from a source or marked as an
// assumption in the file it was read from (topo/spec reads it, topo/costs holds the files that come
// with the program). Zero means free, and the zero Model is a rack without costs.
//
// NIC and Switch apply a model. They take a frame with the time at which it reaches or leaves the
// real machine, and return when that is to happen: they are queues with servers in virtual time,
// and read only headers. The protocol machines do not know that they exist.
//
// Two times are kept apart everywhere: occupancy, which is how long something is busy and therefore
// limits a rate, and latency, which only passes. A server takes frames in the order of their
// arrival, one that waits for its queue pair or its word included; overtaking in real NICs is not
// modelled. Packets of a NIC to itself cost nothing.
package cost
