// Package serve is the daemon's side of package ipc: it lets other processes use a NIC of this
// process.
//
// Each application that connects gets a verbs context of its own. It makes objects by requests on
// its socket, which one goroutine serves; when the socket is closed for any reason, the context is
// closed and all of its objects are destroyed. Posting and polling go through shared memory
// (package ring). One goroutine for all applications, the pump, checks their bells, posts their
// work requests on the engine, copies completions into their rings, and lets the NIC make progress.
// When nothing has happened for a while the pump sleeps, and applications wake it by a byte on a
// socket.
//
// Applications are not trusted. The daemon copies every entry of a ring once and checks the copy.
// It checks positions against the length of the ring, looks handles up in a table of that
// application alone, makes and seals all shared memory itself, and counts the objects of each
// application against limits (Limits). It disconnects an application that violates the protocol of
// the rings or of the socket. Wake-ups go through a socket and not an eventfd, because an
// application could make the other end of an eventfd block.
//
// The parts:
//
//	server.go               Server: accepts and refuses applications
//	client.go, link.go      client: one application; link: its control socket
//	dispatch.go, calls.go   requests and their handlers; calls: requests that wait for an event
//	objects.go, limits.go   objects: handles; counts of objects against the limits
//	memory.go, shared.go    memories: domains, regions, windows; regions that outlive applications
//	queues.go, qp.go        queues: completion queues, queue pairs, shared receive queues, addresses
//	connect.go              connections: listeners, requests, the connection manager
//	pump.go, port.go        pump: the rings of all applications; port: the pump's state of one of them
//	post.go, sendring.go    the objects that have bells; send rings in an application's memory
//	events.go               asynchronous events of the NIC, and which applications get them
//	multicast.go            attachments to multicast groups, with their quota
//	pool.go                 the tables of the NIC that all applications share, with the daemon's reserve
//	status.go               applications and shared regions, for `rdmalab status`
//
// Unmodified programs over libibverbs and librdmacm (packages uverbs, ucma):
//
//	program.go              program: its commands, executed one by one
//	program_kin.go          kin: children of fork, which use the device of their parent
//	program_area.go         area: the memory file of its rings
//	program_memory.go       its own memory, which the daemon reads and writes; domains, regions, windows
//	program_guard.go        guard: access to memory for whose pages the kernel may wait
//	program_share.go        share: memory of the program that the daemon has mapped, too
//	program_queues.go       creates and destroys queues, queue pairs and address handles
//	program_modify.go       the modify command of a queue pair
//	program_resize.go       the resize command of a completion queue
//	program_rings.go        takes posts from the rings (rung), puts completions there
//	program_sendring.go     send rings in the program's own memory
//	program_events.go       eventQueue: asynchronous events and completion channels
//	program_manager.go      programManager: commands of librdmacm
//	program_nics.go         which NIC of a host with several executes them
//
// Locking: exclusive use of the engine (verbsengine.Shell.Enter) guards the data of the pump:
// ports, rings, and the tables of which port owns a queue pair or queue. objects, link, calls,
// connections and sharedRegions have a mutex each; Server.mu guards the list of clients.
// sharedRegions.mu and connections.mu are taken before objects.mu and before the engine, and
// programManager.mu after the engine of a NIC. No goroutine enters the engines of
// two NICs.
package serve
