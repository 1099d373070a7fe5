// Package scenario is what `rdmalab sim` runs: whole racks in virtual time with applications that check what they
// get, under faults drawn from a seed. A run is a function of its name and seed; the seed of a failure replays it.
//
//	transport   random faults, sizes, MTUs, windows and operations; every byte, atomic and completion is checked
//	soak        2,000 messages each of 64 KiB WRITE, READ and SEND and 20,000 atomics: seed 1 with 10 % loss both
//	            ways, seeds 2 to 5 with duplication, reordering, corruption and all together
//	crash       a memory server's NIC dies: its clients get the promised status in the promised time, others go on
//	partition   a host is cut off and comes back before the retry limit: nothing is lost, others do not notice
//	rnr         a receiver that posts too late, and one that never posts
//
// The checks do not trust the code under test. mix keeps a shadow of the peer's memory and predicts every READ,
// every original value and every received message; contend lets clients count together so that an atomic done
// twice or not at all leaves a gap; check compares what NICs counted with what links carried.
package scenario
