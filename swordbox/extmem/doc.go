// Package extmem has what handlers share that keep packets, counters or tables in the memory of
// servers: the keys of rules that say where, the connections to the servers, and their listing.
//
// Contract. A handler keeps a Channel for each connection that its rules need, in a Links. The
// switch offers a connection when it is made, and again after each change of rules
// (handler.Connector). Links decides by Channel.Fit whether the handler can use the connection
// under the present rules. So the handler begins to use a refused connection when the rule is
// corrected. A connection that a changed rule cannot use any more stays open, unused. A handler
// that reads and writes frames sends its requests with a Conn.
//
//	keys.go   values of rules: servers, offsets, numbers
//	area.go   where numbered cells are in the memory of several servers
//	links.go  connections to servers, and how a listing shows them
//	conn.go   READs and WRITEs on a connection, with retransmission
//	blind.go  READs and WRITEs on a connection, without retransmission
package extmem
