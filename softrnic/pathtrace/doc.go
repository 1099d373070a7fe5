// Package pathtrace measures where the time of an operation goes on a rack: in the client's NIC, in
// send calls and on links, in the switch, in the server's NIC.
//
// The daemons of two hosts and of the switch record Events in Rings while a latency test has one
// operation of one packet in flight. The times come from the machine's monotonic clock, so that
// those of different processes can be compared. Analyze follows each operation through the events.
package pathtrace
