// Package cost models the time that NICs, links, a switch and a client's processor take. So a run
// in virtual time has the pace of measured hardware.
//
// A Model consists only of numbers: rates, latencies and sizes. The file from which a Model is read
// gives a source for each number or marks it as an assumption. rackfile reads these files;
// rackfile/costs has those that are built into rdmalab. A cost of zero takes no time; the zero Model is
// a rack without costs.
//
// Card applies a model to a NIC, Box to a switch. The caller passes each frame with the time at
// which it arrives there or is made there. Card and Box return the time at which the frame takes
// effect or leaves. Card and Box consist of queues with servers in virtual time, in the sense of
// queueing theory. They read the headers of a frame; Box also compares the whole frame with the one
// that it was made from. The protocol's state machines do not depend on Card and Box.
//
// Two times are distinguished everywhere. Occupancy is how long a part of the hardware is busy, and
// limits its rate; latency delays without limiting a rate. A server serves frames in the order of
// their arrival, even a frame that must then wait for its queue pair or word. In a real NIC, other
// frames may overtake such a frame. Packets of a NIC to itself cost nothing.
package cost
