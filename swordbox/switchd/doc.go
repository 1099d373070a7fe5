// Package switchd runs a switch. In each round, one loop receives from all ports, applies the
// faults of the links up, runs the pipeline, applies the faults of the links down, and flushes the
// bounded egress queues. Between rounds it waits for frames or for the earliest deadline.
//
// The loop is one goroutine and owns all state that it needs for a frame: the pipeline, the fault
// plan, the frames that a fault delays. Other goroutines pass it functions that it runs between two
// rounds. It is not locked to an OS thread, because waking a goroutine that is locked to a thread
// costs a hundred times as much.
//
// Ports come and go: a port whose interface is missing is opened as soon as the interface exists,
// and the switch forgets the addresses learnt on a link that goes down. A switch process that is
// started again begins with empty tables and the faults of the rack file; state that must survive
// is in the journal (swordbox/journal).
//
// Daemon puts the parts together, each a type with one responsibility: ports (interfaces), traffic
// (frames of a round), commands (functions for the loop), faultControl, guestControl,
// programControl and captures (requests of operators). The daemon knows no switch program: programs
// serve their control requests themselves (swordbox/apps, swordbox/handler).
package switchd
