// Package cost models the time that NICs, links, a switch and a client's processor take, so that a
// run in virtual time has the pace of measured hardware.
//
// A Model consists only of figures: rates, latencies and sizes. In the file that a Model was read
// from, each figure has a source or is marked as an assumption (topo/spec reads these files,
// topo/costs has those of the program). Zero means free, and the zero Model is a rack without
// costs.
//
// Card and Box apply a model. The caller passes a frame with the time at which it reaches the NIC
// or switch or is made there, and gets the time at which it takes effect or leaves: inside are
// queues with servers in virtual time, which read only headers. The protocol's state machines know
// nothing of them.
//
// Two times are distinguished everywhere: occupancy, which is how long something is busy and
// therefore limits a rate, and latency, which only passes. A server serves frames in the order of
// their arrival, also those that then wait for their queue pair or word; overtaking in real NICs is
// not modelled. Packets of a NIC to itself cost nothing.
package cost
