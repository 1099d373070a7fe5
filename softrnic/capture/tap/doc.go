// Package tap lets readers watch the links of a switch while it runs: each reader gets the frames
// of the links that it has selected, as a pcapng stream. The stream has one interface for each link
// and direction ("cn0 up", "cn0 down"), and a comment on every packet that was changed, delayed or
// dropped.
//
// The switch never waits for a reader. Frames that a reader cannot take in time are not in its
// stream; they are counted, and reported in the stream's interface statistics. Without readers, a
// frame costs the switch one atomic load, unless the hub keeps the last packets (Hub.Keep), which
// costs about as much as a reader.
package tap
