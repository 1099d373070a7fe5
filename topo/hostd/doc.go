// Package hostd is the daemon of one host of a rack. It owns the host's NIC and its registered
// memory, serves connections to that memory, runs jobs for the command line, and answers requests
// on a control socket.
//
// A host has three parts that fail independently:
//
//   - the NIC: when it crashes, queue pairs, keys and registrations are gone, but the bytes of the
//     memory stay;
//   - the application: when it crashes, its jobs and the queue pairs of its services are gone, but the
//     NIC, the registered memory and the connections to that memory stay;
//   - the machine, which is the process itself.
//
// A memory host is passive: after it has registered its region, its NIC alone executes the requests
// of clients. The daemon takes part only when a client connects.
//
// Most API types are in api.go. Requests and answers are JSON over the socket of rackfile.Paths.Socket.
package hostd
