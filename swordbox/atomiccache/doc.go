// Package atomiccache keeps what a switch knows of the words of memory servers that atomics work
// on, and decides how each operation travels: on the client's connection, or on the switch's
// connection that is shared by all clients, and there unchanged or as a WRITE of the value that the
// atomic would leave.
//
// The rule that makes this correct: at any time all operations on a word travel in one place.
// Either all of them travel on clients' connections, and the switch does not know the value of the
// word; or all of them travel, one after the other, on the word's shared connection, and then the
// value after the last operation sent is the value that the next one will find. A word changes its
// place only when nothing is in flight in the old one.
//
//	Pass     clients' connections; the value is not known. Always correct; the state of a new word
//	Busy     operations are still in flight on clients' connections; new ones must wait
//	Unknown  shared connection, operations unchanged: the value is not known
//	Known    shared connection, atomics as WRITEs: the value is known
//	Closing  operations in flight on the shared connection must end first; new ones must wait
//
// A word leaves Pass only for an atomic under an R_Key with which another one has succeeded, so
// that a wrong R_Key of a client cannot put the shared connection into the error state. An
// operation that only the client's connection can carry (one under another R_Key, a WRITE of
// several packets) makes the word Closing and Busy for as long as it takes.
//
// The caller asks once for each new request, never for a retransmission, and only when the request
// could be sent at once: decisions take effect in the order in which they are made. Every decision
// except Wait is ended by exactly one call of Answered, Undone or Refused.
//
// A Table is used by one goroutine at a time. Nothing allocates once a table has grown to its size.
package atomiccache
