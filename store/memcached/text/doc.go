// Package text is the server's side of memcached's text protocol, without I/O: a Decoder cuts the
// bytes that a client sends into Requests, and functions append answers.
//
// # Commands
//
// set, add, replace, append, prepend, cas, get, gets, delete, incr, decr, flush_all, stats,
// version, verbosity and quit. All other commands, such as touch and the meta commands, are refused
// with ERROR, and the binary protocol is refused with the end of the connection.
//
// # What is refused
//
// A line has up to MaxLine bytes, but get and gets may have any number of keys: a longer line with
// one of these two commands becomes several requests. Whatever bytes a client sends, a Decoder
// does not panic, and keeps no more than about one line and one item in memory. A command that
// cannot be executed becomes a Request with a Refusal, which is its answer. If its line says how
// many bytes of data follow, they are skipped, whatever else is wrong with the line: the next
// command is found. Lines and data end with \n or \r\n. Data that go on where they should end are
// skipped up to the end of the line. A key has 1 to 250 bytes without spaces and ends of
// lines; like memcached, and unlike its documentation, it may have other control characters, which
// memaslap uses.
package text
