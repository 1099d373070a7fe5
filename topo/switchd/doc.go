// Package switchd runs a switch. In each round, one loop receives from all ports, applies the
// faults of the links up, and runs the pipeline. Then it applies the faults of the links down, and
// flushes the bounded egress queues. Between rounds it waits for frames or the earliest deadline.
//
// The loop is one goroutine. It owns all state that it needs for a frame: the pipeline, the fault
// plan, the frames that a fault delays. Other goroutines pass it functions, which it runs between
// two rounds. The goroutine is not locked to an OS thread, because a locked goroutine takes a
// hundred times as long to wake as an unlocked one.
//
// Ports come and go. If an interface is missing, the daemon opens its port as soon as the interface
// exists. When a link goes down, the switch forgets the addresses that it has learnt there. A
// switch process that is started again begins with empty tables and the faults of the rack file.
// State that must survive is in the journal (swordbox/journal).
//
// Daemon consists of parts, each a type with one responsibility: ports (interfaces), traffic
// (frames of a round), commands (functions for the loop), and faultControl, guestControl,
// programControl and captures (requests of operators). The daemon knows no switch program: programs
// serve their control requests themselves (swordbox/apps, swordbox/handler).
package switchd
