// Package atomiccache keeps what a switch knows about the words of memory servers that atomics work
// on. It decides how each operation travels: on the client's connection, or on a connection of the
// switch that all clients share. On the shared connection an operation travels unchanged, or as a
// WRITE of the value that the atomic would leave.
//
// The rule that makes this correct: at any time all operations on a word travel in one place.
// Either all of them travel on clients' connections, and the switch does not know the value of the
// word. Or all of them travel, one after the other, on the word's shared connection; then the value
// after the last operation sent is the value that the next one will find. A word changes its place
// only when no operation is in flight in the old place.
//
//	Pass     clients' connections; the value is not known. Always correct; the state of a new word
//	Busy     operations are still in flight on clients' connections; new ones must wait
//	Unknown  shared connection, operations unchanged: the value is not known
//	Known    shared connection, atomics as WRITEs: the value is known
//	Closing  operations in flight on the shared connection must end first; new ones must wait
//
// A word leaves Pass only for an atomic under an R_Key with which an earlier atomic has succeeded.
// So a client's wrong R_Key cannot put the shared connection into the error state. Some operations
// can travel only on the client's connection: those under another R_Key, and WRITEs of several
// packets. Such an operation makes the word Closing while operations are in flight on the shared
// connection, and then Busy until the operation has ended (at most for Config.Patience).
//
// The caller asks once for each new request, never for a retransmission, and only when it could
// send the request at once: decisions take effect in the order in which they are made. The caller
// ends every decision except Wait by exactly one call of Answered, Undone or Refused, or, if it is
// one of ClientAll, of EndAll.
//
// A Table is used by one goroutine at a time. Nothing allocates once a table has grown to its size.
package atomiccache
