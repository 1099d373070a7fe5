// Package scenario has the scenarios of `rdmalab sim`: whole racks in virtual time with
// applications that check their results, under faults drawn from a seed. A run is a function of its
// name and seed; the seed of a failure replays it.
//
//	transport   random faults, sizes, MTUs, windows and operations; every byte, atomic and
//	            completion is checked
//	soak        2,000 messages each of 64 KiB WRITE, READ and SEND and 20,000 atomics: seed 1 with
//	            10 % loss both ways, seeds 2 to 5 with duplication, reordering, corruption and all
//	            together
//	crash       a memory server's NIC dies: its clients get the promised status in the promised
//	            time, clients of the other server go on
//	partition   a host is cut off and comes back before the retry limit: nothing is lost, and the
//	            other hosts are not disturbed
//	rnr         a receiver that posts too late, and one that never posts
//	locks       16 clients lock and count on 4 words of two memory servers while links and machines
//	            fail and the switch replaces their atomics; histories are linearizable, and at most
//	            one client at a time is inside a lock, by the memory after each packet (Params: with
//	            a switch that only forwards or only tracks, or with published rules)
//	planned     2 clients, 2 words, 2 shared connections: an adversary tries every schedule in
//	            which a few packets are lost, late or doubled and the switch's rules change. The
//	            faults of one schedule are limited in number, and so are the schedules. The search
//	            first continues schedules that made the switch's state tables do a new transition
//	holes       the holes of the SwordBox paper, by the numbers of swordbox/HOLES.md: most do
//	            damage under a published rule, none under a hardened one; hole-1, hole-16 and so
//	            on run one of them
//	crowd       1,000 connections on 4 words; the seed decides whether the memory server sends one
//	            ACK for 1, 4 or 16 requests
//	hostile     one host attacks the connections of the others: spoofed sources, forged PSNs and
//	            answers, foreign keys, old packets, a flood of queue pairs
//	onerma      NICs without connections: every command ends within its bound, bytes are right, no
//	            byte of a target changes after the end of a WRITE, the window is never exceeded;
//	            refused keys and message counters are checked, also under replays and forged
//	            refusals
//	redn        a server's NIC answers lookups and list walks by programs made of work requests:
//	            every answer is right and comes once, also after the death of the server's process
//	redn-locks  a server's NIC hands out locks by such programs: one client at a time has a lock,
//	            in the order of the tickets, while clients die and the server's process is killed
//
// The function All lists these and all other scenarios.
//
// The files, by prefix:
//
//	scenario, variants, sweep        Scenario, All, Find and one run; flags; runs of many seeds
//	faults                           random choices from the seed; random faults of links
//	endpoint, outbox, watch          what several scenarios use: ends of connections, senders of
//	                                 messages, taps in front of nodes, captures
//	transport, mix                   transport; the random operations of its clients
//	fixed, contend                   soak, crash, partition and rnr; atomics that count in two words
//	uc, ud, srq                      the scenarios of these names
//	locks, crowd, hostile            the scenarios of these names
//	planned                          planned: setups, schedules, the adversary, the search
//	holes                            scripts of holes: _safety, _liveness, _wire and _steer of the
//	                                 paper's, _closed of others; _client, the clients of scripts
//	clover, sherman, fusee           a store: _plan and _mix draw a run, other files make and judge it
//	onerma                           onerma: plan and run, _client and _bulk its processes, _watch the
//	                                 check of messages
//	redn                             redn: plan and run, _server the memory and the programs, _client
//	                                 clients that know every answer, _locks redn-locks
//	buffer, lookup, statestore       the switch keeps data in servers' memory
//	extmem                           common code of buffer, lookup and statestore
//	kvcs                             the scenario of this name
//	trial                            stores that define their own scenarios (store.Trial); bytekeys
//	histories                        common code of runs with histories; variations of a plan (--mix)
//	check                            compares counters of NICs and links; fills in the report
//	promise                          checks whether a queue pair was right to give up
//
// The checks do not trust the code under test. mix keeps a shadow of the peer's memory and predicts
// every READ, every original value and every received message; contend lets clients count together
// so that an atomic done twice or not at all leaves a gap; check compares what NICs counted with
// what links carried.
package scenario
