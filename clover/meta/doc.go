// Package meta is Clover's metadata server: it gives out space, knows where keys begin, and takes
// back the nodes that have been superseded. A client that knows a node of its key does not need it
// for a GET or PUT.
//
// One thread runs the server and waits for completions; with Config.Threads others take requests, and
// answer those that need no memory server (threads.go). The server reads every chain from the
// memory servers itself; reports of clients are only hints where to look. So wrong or lost reports,
// and appends that a switch has steered to another node, leak no node.
//
// Every node is in exactly one state:
//
//	free     in the list of its class, with the version of its next use
//	held     given to a client, and not yet seen in a chain
//	linked   in the chain of a key, at or behind the newest node that the server knows of
//	worn     its versions are used up; free with version 1 when every client has confirmed a new
//	         epoch
//
// A client of an earlier incarnation of the server, or one that has not heard of a loss of memory,
// may still link a node that the server does not know it to hold. Such nodes are held by a client
// number that no client has (the orphan) until that cannot happen any more.
//
// The parts:
//
//	server.go, threads.go    Server: the main thread's loop; request threads
//	front.go, leave.go       front: connections to clients; how they end
//	handle.go                client: requests, numbers, leases (keep)
//	fence.go                 fencer: the memory servers end the connections of a client
//	memory.go, load.go       memories: connections to memory servers; the store found or formatted
//	recover.go, lose.go      after a restart of this server; after the loss of a server's memory
//	nodes.go, free.go        pool: states of nodes, epochs; the lists of free nodes
//	segments.go              the class of each segment in a shared space
//	walk.go, hints.go        chains: follows chains, retires what they have passed; reports as hints
//	keys.go, absorbed.go     opens, finds and erases keys; nodes that were absorbed
//
// The server retires a node that the chain has passed. It moves the directory on first, so that a
// restarted server never begins at a node that may have been reused.
package meta
