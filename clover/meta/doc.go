// Package meta is Clover's metadata server: it gives out space, knows where keys begin, and takes back the nodes that have
// been superseded. It is not on the path of a GET or PUT of a client that knows its key.
//
// It is one thread that waits for completions. All that it knows of the chains it reads from the memory servers itself: what clients
// report are hints where to look. So wrong reports, lost ones, and appends that a switch has steered elsewhere leak nothing.
//
// Every node is in exactly one place:
//
//	free     in the list of its class, with the version of its next life
//	held     given to a client that has not been seen to link it; those that clients of an earlier life of the server, or of
//	         memory that was lost, may still link are held by nobody in particular (the orphan) until that is over
//	linked   in the chain of a key, at or behind the newest node that the server knows of
//	worn     its versions are used up; free with version 1 when every client has taken note of a new epoch
//
// A node that the chain has passed is retired: the directory is moved on first, so that a server that was restarted never begins
// at a node that may have been used again.
package meta
