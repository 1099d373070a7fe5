// Package tap lets readers watch the links of a machine while it runs: each gets the frames that it asks for as a
// pcapng stream, with one interface for each link and direction ("cn0 up", "cn0 down") and a comment on every
// packet that somebody touched.
//
// The machine never waits for a reader. What a reader cannot take in time is lost to it, counted, and said in the
// stream's interface statistics. While nobody reads, the machine pays for one atomic load.
package tap
