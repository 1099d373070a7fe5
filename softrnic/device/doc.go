// Package device is the body of a NIC in real time: an engine behind a mutex, a port to a link, and one goroutine.
//
// Frames are handled by whoever is there. An application that posts sends inline. One that polls or waits drains
// the port itself as long as it spins, which is the fast way: no thread has to be woken for a packet. When nobody
// polls, the progress goroutine, the only one of a NIC, blocks in the Waiter and does the work; while somebody
// polls it keeps away from the port, because its wake-up for each packet would cost more than the packet.
//
// Locks: Device.mu guards the engine, the port and the batches, and is held for one step (one receive batch, one
// list of work requests). The engine is single-threaded and knows nothing of this.
package device
