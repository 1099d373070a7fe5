// Package serve is the daemon's side of package ipc: it lets other processes use a NIC of this
// process.
//
// Each application that connects gets a verbs context of its own. It makes objects by requests on
// its socket, which one goroutine serves; when the socket is closed, for whatever reason, the
// context is closed and all of its objects are destroyed. Posting and polling go through shared
// memory (package ring): one goroutine for all applications, the pump, checks their doorbells,
// posts their work requests on the engine, and copies completions into their rings, while the NIC
// makes progress. When nothing has happened for a while the pump sleeps, and applications wake it
// by a byte on a socket.
//
// Applications are not trusted. The daemon copies every entry of a ring once and checks the copy.
// It checks positions against the length of the ring, looks handles up in a table of that
// application alone, makes and seals all memory itself, and counts the objects of each application
// against limits (Limits). It disconnects an application that violates the protocol of the rings or
// of the socket. Wake-ups go through a socket and not an eventfd, because an application could make
// the other end of an eventfd block.
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
// Locking: exclusive use of the engine (verbsengine.Shell.Enter) guards what the pump works on:
// ports, rings, and the tables of which port owns a queue pair or queue. objects, link, calls,
// connections and sharedRegions have a mutex each; Server.mu guards the list of clients.
// sharedRegions.mu and connections.mu are taken before objects.mu and before the engine.
package serve
