// Package hostd is the daemon of one host of a rack: it owns the host's NIC and its registered
// memory, serves connections to that memory, runs jobs for the command line, and answers on a
// control socket.
//
// A host has three parts that fail independently:
//
//   - the NIC, which Down crashes: queue pairs, keys and registrations are gone, the bytes of the memory stay;
//   - the application, which CrashApp kills: its jobs and the queue pairs of its services are gone,
//     NIC and registered memory stay, so that peers can continue over new connections;
//   - the machine, which is the process itself.
//
// A memory host is passive: after it has registered its region, only its NIC works; only a new
// connection wakes the daemon.
//
// The API types are in api.go. Requests and answers are JSON over the socket of spec.Paths.Socket.
package hostd
