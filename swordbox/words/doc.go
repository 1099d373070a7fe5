// Package words knows what a switch may know about the words of a memory server that atomic operations work on, and
// decides what becomes of each operation: whether it goes to the server on the client's own connection, or on a
// connection that the switch shares among all clients, and there as it is or as a WRITE of the value that it would
// leave.
//
// The rule that makes this right: at any time the operations on a word travel in one place. Either all of them go on
// the clients' own connections, and the switch does not pretend to know the word; or all of them go, one after the
// other, on the one shared connection of the word, and then the value behind the last operation sent is the value
// that the next one will find. A word changes its place only when nothing is on its way in the old one.
//
//	Pass     own connections; nothing is known. Always right, and where every word begins
//	Busy     something is still on its way on own connections; what comes must wait
//	Unknown  shared connection, operations as they are: the value is not known
//	Known    shared connection, operations as WRITEs: the value is known
//	Closing  something is still on its way on the shared connection that must end first; what comes must wait
//
// A word leaves Pass when an atomic under a key has succeeded, so that no stranger's key can put the shared
// connection into error. What only an own connection can carry (an operation under another key, a WRITE of several
// packets) makes the word Closing and Busy for as long as it takes.
//
// Ask once for each new request, never for a retransmission, and only when the request could be sent at once: the
// decision takes effect in the order of the asking. Every decision but Wait is ended by exactly one of Answered,
// Undone and Refused.
//
// The package is a value of one goroutine; nothing allocates once a table has grown.
package words
