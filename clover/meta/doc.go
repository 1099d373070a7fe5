// Package meta is Clover's metadata server. It gives out space, knows a node of each key's chain,
// and takes back nodes that have been superseded. A client that knows a node of its key needs no
// metadata server for a GET, nor for a PUT if it has an unused node.
//
// One thread, the main thread, runs the server and waits for completions. With Config.Threads other
// threads receive requests and answer those that need no memory server (threads.go). The server
// learns from the order of reports which nodes are superseded, whatever a switch did with the
// appends (reports.go has the rule and its proof). For the last appends to a key, for tombstones and
// after lost reports it follows the chain in the memory servers by headers, so that no node leaks.
//
// Every node is in exactly one of these states:
//
//	free     in the list of its class, with the version of its next use
//	held     given to a client, and not yet known to the server as superseded or as in a chain
//	linked   in the chain of a key, or known to be superseded and not yet taken back
//	worn     its versions are used up; it becomes free with version 1 when every client has
//	         confirmed a new epoch
//
// After a restart the server does not know yet which nodes are in chains. After a loss of memory, a
// client that has not learnt of it may still link a lost node. As long as such a node may be in a
// chain or may get into one, the server counts it as held by the orphan, a client number that no
// client has.
//
// The parts:
//
//	server.go, threads.go    Server: the main thread's loop; request threads
//	front.go                 answers to clients; their connections are a store/rpc.Server
//	handle.go                client: requests, numbers, leases (keep)
//	fence.go                 numbers of clients; store/lease fences them before nodes are reused
//	memory.go, load.go       memories: connections to memory servers; the store found or formatted
//	recover.go, lose.go      after a restart of this server; after the loss of a server's memory
//	copies.go, view.go       several copies of each node: links, filling; which servers' copies count
//	hung.go, inquiry.go      memory services that do not answer
//	balance.go               how many of the new nodes each memory server gives
//	nodes.go, free.go        pool: states of nodes, epochs; the lists of free nodes
//	segments.go              the class of each segment in a shared space
//	reports.go, held.go      frees nodes by the order of reports; the table of held nodes
//	walk.go                  chains: follows chains, retires superseded nodes
//	keys.go                  opens, finds and erases keys
//
// Before the server retires a superseded node, it makes the key's record in the directory name a
// later node. So a restarted server never begins at a node that may have been reused.
package meta
