// Package flows sorts the packets of a capture into flows: the requests of one end of a connection and
// the answers to them. Packets do not say which queue pairs are connected. The package takes it from the
// datagrams by which the connection was made, if the capture has them, and otherwise from the PSNs of
// requests and answers. A queue pair number that is used again begins a new flow.
//
// A Book takes packets in the order of the capture and keeps a copy of their headers, at most MaxPackets.
// The package has no clock and opens no file.
package flows
