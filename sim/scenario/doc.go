// Package scenario has the scenarios of `rdmalab sim`: whole racks in virtual time with
// applications that check their results, under faults drawn from a seed. A run is a function of its
// name and seed; the seed of a failure replays it.
//
// The function All lists the scenarios, and says what each of them runs and checks.
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
//	holes                            scripts of holes: those of the paper in _safety, _liveness, _wire
//	                                 and _steer, others in _closed; _client, the scripts' clients
//	clover, sherman, fusee           a store: _plan and _mix draw a run, other files make and judge it
//	onerma                           onerma: plan and run, _client and _bulk its processes, _watch the
//	                                 check of messages
//	redn                             redn: plan and run, _server the memory and the programs, _client
//	                                 clients that know every answer, _locks redn-locks
//	buffer, lookup, balance, netcache, statestore, telemetry, packettrace
//	                                 the switch keeps data in servers' memory
//	extmem                           common code of these
//	kvcs                             the scenario of this name
//	trial                            stores that define their own scenarios (store.Trial); bytekeys
//	histories                        common code of runs with histories; variations of a plan (--mix)
//	check                            compares counters of NICs and links; fills in the report
//	promise                          checks whether a queue pair was right to give up
//
// The checks do not trust the code under test. mix keeps a shadow, a copy of what the peer's memory
// must contain, and predicts every READ, every original value and every received message. contend
// lets clients count together, so that an atomic that is done twice leaves a gap, and a lost one
// shows a value twice. check compares what NICs counted with what links carried.
package scenario
