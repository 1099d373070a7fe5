// Package extmem is shared by the handlers that keep packets, counters or tables in the memory of
// servers. It has the keys of rules that name this memory, the connections to the servers, and the
// listing of the connections.
//
// Contract. A handler keeps a Channel for each connection that its rules need, in a Links. The
// switch offers a connection when it is made, and again after each change of rules
// (handler.Connector). Links decides by Channel.Fit whether the handler can use the connection
// under the present rules. So the handler begins to use a refused connection when the rule is
// corrected. A connection that does not fit the changed rules stays open, but is not used. A
// handler that reads and writes frames sends its requests with a Conn.
//
//	keys.go   values of rules: servers, offsets, numbers
//	area.go   where numbered cells are in the memory of several servers
//	links.go  connections to servers, and how a listing shows them
//	conn.go   READs and WRITEs on a connection, with retransmission
//	blind.go  READs and WRITEs on a connection, without retransmission
package extmem
