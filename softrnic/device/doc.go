// Package device is the shell of a NIC in real time: an engine behind a mutex, a port to a link,
// and one goroutine.
//
// Any thread in a call of the device handles frames. An application that posts sends inline. One
// that polls or waits drains the port itself while it spins, which is fastest: no thread has to be
// woken for a packet. When no application polls, the progress goroutine, the only one of a NIC,
// blocks in the Waiter and does the work; while one polls, the goroutine keeps away from the port,
// because its wake-up for each packet would cost more than the packet.
//
// Locks: Device.mu guards the engine, the port and the batches, and is held for one step (one
// receive batch, one list of work requests). The engine is single-threaded and knows nothing of
// this.
package device
