// Package restart is what a switch does about the connections that its former life has moved requests of. How their PSNs
// were shifted and what was outstanding is forgotten, so none of their packets may pass: a server would take them for
// others. Each request of such a row is answered by a fatal NAK (remote operational error), so the client's queue pair
// goes to ERROR at once and the application connects anew, as after any failure of a server.
//
// A NAK acknowledges everything before its PSN (IBTA 9.7.5.1.2). It therefore carries the PSN of the row's oldest request
// without an answer, which the record knows, and never that of a later request that happened to come first.
//
// Requests to a server are held off while connections of the former life to it may still bring late requests; see
// Config.Blocked.
//
// A row is forgotten when the connection manager announces one of its queue pairs for another connection, or when nothing
// was heard of it for longer than any NIC goes on trying.
package restart
