// Package switchd runs a switch: one loop over all ports drains them, applies the faults of the way up, asks the
// pipeline, applies the faults of the way down, and flushes the bounded egress queues once a round. Between rounds it
// waits for frames, or for the earliest deadline.
//
// The loop is one goroutine and owns everything that a frame meets: the pipeline, the fault plan, the frames that a
// fault delays. Others hand it functions to run between two rounds. It is not tied to an OS thread, because a wake
// from such a goroutine costs a hundred times one from a plain one.
//
// Ports come and go: one whose interface is missing is opened as soon as it is there, and a link that is cut loses
// what was learnt behind it. A switch process that is started again begins with empty tables and the faults of the
// rack file: a switch's state is soft.
package switchd
