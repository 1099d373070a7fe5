// Package serve is the daemon's side of package ipc: it lets other processes use a NIC of this
// process.
//
// Each application that connects gets a verbs context of its own. It makes objects by requests on
// its socket, which one goroutine serves; when the socket is closed, for whatever reason, the
// context is closed and all of its objects are destroyed. Posting and polling go through shared
// memory (package ring): one goroutine for all applications, the pump, looks at their doorbells,
// posts their work requests on the engine, and carries completions the other way, while the NIC
// makes progress. When nothing has happened for a while it sleeps, and applications wake it by a
// byte on a socket.
//
// An application is not trusted. Every entry of a ring is copied once and checked as a copy,
// positions are checked against the length of the ring, handles are looked up in a table of the
// application alone, memory is made and sealed here, and the objects of an application are counted
// against limits (Limits). An application that violates the protocol of the rings or of the socket
// is disconnected. The wake-up is a socket and not an eventfd: an application could make an eventfd
// block its other end.
//
// The parts:
//
//	server.go               Server: accepts and refuses applications
//	client.go, link.go      client: one application; link: its control socket
//	dispatch.go, calls.go   requests and their handlers; calls: those that wait
//	objects.go, limits.go   objects: handles and what counts against the limits
//	memory.go, shared.go    memories: domains, regions, windows; regions that outlive applications
//	queues.go, qp.go        queues: completion queues, queue pairs, shared receive queues, addresses
//	connect.go              connections: listeners, requests, the connection manager
//	pump.go, port.go        pump: the rings of all applications; port: what it knows of one of them
//	post.go                 the objects behind the doorbells
//
// Locking: the engine's exclusiveness (verbsengine.Shell.Enter) guards what the pump works on:
// ports, rings and the owners of numbers. objects, link, calls, connections and sharedRegions have
// a mutex each; Server.mu guards the list of clients. sharedRegions.mu and connections.mu are taken
// before objects.mu and before the engine.
package serve
