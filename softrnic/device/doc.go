// Package device is the shell of a NIC in real time: an engine behind a mutex, a port to a link,
// and one goroutine.
//
// Frames are handled by the threads that call the device. A post sends its frames before it
// returns. An application that polls or waits receives from the port itself while it spins; this is
// fastest, because no thread has to be woken for a packet. When no application polls, the progress
// goroutine, the only goroutine of a NIC, blocks in the Waiter and does the work. While an
// application polls, that goroutine does not touch the port, because waking it for each packet
// would cost more than the packet.
//
// Locks: core.mu guards the engine, the port and the batches, and is held for one step (one
// receive batch, one list of work requests). The engine is single-threaded and has no lock.
package device
