package experiment

// oneLock is Sherman's lock micro-benchmark: each client repeats CAS until it has the lock, and
// releases it without accessing any data that the lock might protect.
var oneLock = Experiment{
	Name:     "one-lock",
	Short:    "rate at which 1 to 256 clients take and release one lock in host or NIC memory, also if the switch replaces CAS by WRITE",
	Figure:   "Sherman §4 (lock micro-benchmark); SwordBox fig. 4 and 10, and the rate of one lock in §6",
	Examples: []string{"--on rack --series host,switch --clients 1,16"},
	Long: func() string {
		return "All clients take the same lock, a word of 8 bytes on a memory server. Each client repeats CAS until it has the\n" +
			"lock, and releases the lock by a WRITE of 0. A series is one way to do this. The series differ in three respects:\n\n" +
			"  memory   the lock word is in host memory of the server, or, where the series says so, in device memory on the\n" +
			"           server's NIC, as in Sherman\n" +
			"  switch   the switch only forwards (CAS), or it replaces each CAS by a WRITE of the new value (switch locks), by rules\n" +
			"           of action atomics: published, as in the SwordBox paper, or hardened, without the paper's holes (ways in which\n" +
			"           its design loses data, hangs or is slow; swordbox/HOLES.md)\n" +
			"  misses=  what happens in the switch to a CAS that must fail because the lock is taken. server: the server answers it;\n" +
			"           this is the default. switch: the switch answers it. wait: the switch holds it until the lock is free, at\n" +
			"           most for 1 ms\n\n" +
			"In series published, lock words are 0 or 1, and a client releases its lock by CAS, as in the SwordBox paper. This\n" +
			"series has at most 512 clients; larger numbers of --clients are left out. In the simulator, the switch of series\n" +
			"middlebox and middlebox-wait is as slow as the middlebox of that paper, one processor core with DPDK; --cost says\n" +
			"how slow. In the other series the switch keeps up with every load (line rate), whatever --cost says. In series\n" +
			"no-delay it also adds no delay.\n\n" +
			"On a rack, as-is and as-is-device use the switch's present program and rules. For every other series the experiment\n" +
			"installs the program and the rules that the series needs. At the end it restores the earlier program and rules.\n\n" +
			"The table has a line for each series and number of clients. Numbers in parentheses are the SwordBox paper's.\n\n" +
			"  CAS Mops                  answered CAS, in millions per second\n" +
			"  LOCKED AND RELEASED Mops  locks taken and released, in millions per second\n" +
			"  CAS/LOCK                  mean number of CAS for each lock taken\n" +
			"  LOCK p50, p99 us          median and 99th percentile of the time from the first CAS for a lock to the response of the\n" +
			"                            CAS that took it, in microseconds\n" +
			"  REPLACED %                percentage of the CAS that the server did not execute as CAS\n" +
			"  PAPER'S LIMIT Mops        largest rate of CAS in the SwordBox paper, or of WRITE if FROM says so, in millions per\n" +
			"                            second. These rates are inputs of the simulator: the cost file has them\n" +
			"  FROM                      where in the SwordBox paper this limit is\n\n" +
			"On a rack the hosts keep the connections of their clients until the clients of all hosts have ended. The published\n" +
			"switch sends the requests of all clients on the connection of one of them, and they would fail without it (hole 4).\n" +
			"If no CAS of a line has succeeded, the exit status is 1.\n\n" +
			"On a rack the lock is the last word of the memory that server --to registers: host memory or, where the series says\n" +
			"so, the device memory on its NIC, where Sherman keeps its locks. Stores use this memory too: stop them first."
	},
	Sim: "20 s", Rack: "1 min", Target: "lock", Cost: "connectx5-dpdk",
	New: func() Body {
		return &wordBody{list: lockSeries(), clients: []int{1, 4, 16, 64, 256}, locks: true}
	},
}

// publishedPairs is the published rate of one lock in millions of acquire and release pairs a
// second, for locks in host memory and in device memory (SwordBox §6).
const publishedPairs = 0.5

// publishedClients is the largest number of clients with the published program, which knows 512
// connections. The requests of further clients are not serialised.
const publishedClients = 512

func lockSeries() []wordSeries {
	forward := Switch{LineRate: true}
	replace := func(mode, misses string) Switch {
		return Switch{Action: ReplaceAtomics, Mode: mode, Misses: misses, LineRate: true}
	}
	direct := replace("", "wait")
	direct.Direct = true
	return []wordSeries{
		{key: "host", name: "CAS, host memory", limit: 3, source: "SwordBox fig. 4", load: Words{Switch: forward}},
		{key: "device", name: "CAS, device memory", limit: 9, source: "SwordBox fig. 4", load: Words{Device: true, Switch: forward}},
		{
			key: "switch", name: "switch locks, hardened", limit: 18.6, source: "fig. 4: WRITE, 6.2 × CAS in host memory",
			load: Words{Switch: replace("", "")},
		},
		{
			key: "switch-device", name: "switch locks, hardened, device memory", limit: 22.5, source: "fig. 4: WRITE, 2.5 × CAS in device memory",
			load: Words{Device: true, Switch: replace("", "")},
		},
		{key: "misses-switch", name: "switch locks, hardened, device memory, misses=switch", load: Words{Device: true, Switch: replace("", "switch")}},
		{key: "misses-wait", name: "switch locks, hardened, device memory, misses=wait", load: Words{Device: true, Switch: replace("", "wait")}},
		{key: "no-delay", name: "switch locks, hardened, device memory, misses=wait, switch without delay", load: Words{Device: true, Switch: direct}, on: OnSim},
		{
			key: "published", name: "switch locks, published, 0/1 words", limit: 18.6, source: "fig. 4: WRITE, 6.2 × CAS in host memory",
			load: Words{Bits: true, Switch: replace(Published, "")}, most: publishedClients,
		},
		{
			key: "middlebox", name: "switch locks, hardened, one DPDK core", limit: 2.8, source: "SwordBox fig. 10",
			load: Words{Switch: Switch{Action: ReplaceAtomics}}, on: OnSim,
		},
		{
			key: "middlebox-wait", name: "switch locks, hardened, one DPDK core, misses=wait",
			load: Words{Switch: Switch{Action: ReplaceAtomics, Misses: "wait"}}, on: OnSim,
		},
		{key: "as-is", name: "host memory, switch as it is", load: Words{Switch: Switch{Action: AsIs}}, on: OnRack, chosen: true},
		{key: "as-is-device", name: "device memory, switch as it is", load: Words{Device: true, Switch: Switch{Action: AsIs}}, on: OnRack, chosen: true},
	}
}
