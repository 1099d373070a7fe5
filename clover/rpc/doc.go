// Package rpc defines the messages between Clover's clients and its metadata server. A request is
// one SEND. The server writes the answer into a buffer of the client.
//
//	request                                                   answer
//	0   4   5   6   8      12     16       24          28     0   4      6   8      12
//	+---+---+---+---+------+------+--------+-----------+----  +---+------+---+------+----
//	|seq|op |cls| n |client|epoch | answers| their rkey| body |seq|status| n |epoch | body
//	+---+---+---+---+------+------+--------+-----------+----  +---+------+---+------+----
//
// op is the kind of the request, cls a class of nodes, n a number of nodes or records. "answers" is
// the address of the client's slots for answers, with its R_Key. All numbers are little-endian. A
// request has at most MaxRequest bytes, an answer at most MaxAnswer. Parsing never panics, and the
// counts that it returns are within their limits.
package rpc
