// Package machines brings a rack up that is on several machines, and reaches it from its client: the place
// where `rdmalab up` was called. It uses the program ssh of the system, with one connection to each
// machine that stays open (ControlMaster), and no daemon of its own.
//
// A machine runs a slice of the rack: its switches and hosts, and its ends of trunks. `rdmalab slice
// apply` there reads a Slice from its standard input, and brings it up by package rack; what is up already
// stays. The connection also forwards the control sockets of the machine's nodes to the folder of the
// client (rackfile.ClientOf), so that commands reach all daemons as if they were on the client. What needs
// processes or files of the machine is run there, by the same connection.
//
// A Client is used by one goroutine; its methods reach all machines at once.
package machines
