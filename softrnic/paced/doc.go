// Package paced lets frames that move in real time take the times of a cost model, for racks in slow
// motion. NIC stands between a host's NIC and its link, Switch between a switch program and the links
// to the hosts. Both are state machines: the caller passes each frame with the time by the rack's slow
// clock, and asks at Deadline for the frames that have spent their time.
//
// A frame passes the stages that it passes in the simulator (sim/simnet): it stalls and waits in the
// NIC before the NIC's state machine gets it, and it waits in the NIC or switch that has made it before
// it occupies the link. Each stage begins at the time at which the one before was to end, even if the
// process got the processor later, so that delays of the machine do not add up within a NIC or switch.
//
// Frames are copied while they wait. The number of waiting frames is bounded (MaxHeld); a frame for
// which there is no room is dropped and counted.
package paced
