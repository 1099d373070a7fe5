// Package tap lets readers watch the links of a machine while it runs: each gets the frames that it
// asks for as a pcapng stream, with one interface for each link and direction ("cn0 up", "cn0
// down") and a comment on every packet that was changed, delayed or dropped.
//
// The machine never waits for a reader. Frames that a reader cannot take in time are lost to it,
// counted, and reported in the stream's interface statistics. Without readers, the machine pays for
// one atomic load.
package tap
