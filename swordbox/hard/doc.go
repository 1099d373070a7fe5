// Package hard is the hardened way to serialise requests to a memory server in the switch: requests of many clients move
// to connections of the switch's own, and atomics become WRITEs there, such that loss, duplication, reordering and the
// death of a client or a server cost no acknowledged operation and grant no lock twice.
//
// How it keeps order. A row (the requests of one client's queue pair) is in one place at a time: on the client's own
// connection, or on one shared connection. A request for the other place is held until everything before it has been
// answered where it is. So the server executes a row's requests in the order of the client's posts, as on any reliable
// connection, and answers come back in that order.
//
// How it numbers. Towards the client the switch is the responder: it takes requests in the order of their PSNs, answers
// a gap with one sequence NAK, and duplicates from what it remembers. Towards the server the own connection is numbered
// without the requests that have moved; a psnMap translates both ways. What has a number once keeps it.
//
//	lane     what is known of one row: place, psnMap, window of records, held packets, answers owed
//	server   a memory server: shared connections, words, keys that were seen to work
//	Machine  all of them; implements mode.Machine
//
// What it need not send. A CAS that is known to fail goes as a WRITE of no bytes. A rule may have the switch answer it, once the
// server has acknowledged the value, or keep it for a while, in the order of arrival, until it would succeed (see miss.go).
//
// What it cannot see. A word is known by the address that requests name: memory that a server has registered twice, under
// two addresses, must not be used as a word under both. And the server itself must change its words by requests of its own,
// through the switch, or not at all.
//
// Nothing here knows a socket, a clock or a goroutine. Every queue has a bound, every wait a deadline: a held packet is
// given up after Config.HoldTime, an answer withheld behind a repeated READ goes out after Config.RedoTime, a request on a
// shared connection ends with its retries, a word that waits for own connections ends with words.Config.Patience.
package hard
