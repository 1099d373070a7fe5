package experiment

// oneLock is Sherman's lock micro-benchmark: each client repeats CAS until it has the lock, and
// releases it without accessing any data that the lock might protect.
var oneLock = Experiment{
	Name:   "one-lock",
	Short:  "rate at which 1 to 256 clients take and release one lock: in host memory, in NIC memory, with the switch",
	Figure: "Sherman's lock micro-benchmark (on-chip lock table, §4); SwordBox fig. 4 and 10, and the rate of one lock in §6",
	Long: "All clients take the same lock, a word of 8 bytes: each repeats CAS until it has the lock, and releases it by a\n" +
		"WRITE of 0. The series differ in two ways. The lock word is in host memory of the server, or in device memory on\n" +
		"its NIC, as in Sherman. And the switch only forwards (CAS), or replaces each CAS by a WRITE of the new value\n" +
		"(switch locks), by hardened or published rules of action atomics. A CAS that fails is answered by the server,\n" +
		"with misses=switch by the switch, and with misses=wait it waits in the switch until the lock is free.\n\n" +
		"In series published, lock words are 0 or 1 and are released by CAS, as in the paper. In the simulator, the\n" +
		"switch of series middlebox and middlebox-wait is as slow as the paper's middlebox, one processor core with DPDK;\n" +
		"that of the other series keeps up with every load (line rate), and that of no-delay also has no delay. Series\n" +
		"as-is and as-is-device leave program and rules of the rack's switch unchanged; for the other series the switch\n" +
		"gets the rules that they need, and its earlier rules back at the end.\n\n" +
		"  CAS Mops                   answered CAS, in millions per second\n" +
		"  LOCKED AND RELEASED Mops   locks taken and released, in millions per second\n" +
		"  CAS/LOCK                   CAS for each lock taken\n" +
		"  LOCK p50, p99 us           time from the first CAS for a lock to the response of the CAS that took it\n" +
		"  REPLACED %                 share of the CAS that reached the server as another operation\n" +
		"  PAPER'S LIMIT Mops         the paper's rate with many clients; FROM says where the paper has it\n\n" +
		"On a rack the lock is the last word of the memory of server --to, or of the lock table on its NIC. Stores use\n" +
		"this memory too: stop them first.",
	Sim: "20 s", Rack: "1 min", Cost: "connectx5-dpdk",
	New: func() Body {
		return &wordBody{list: lockSeries(), clients: []int{1, 4, 16, 64, 256}, locks: true}
	},
}

// publishedPairs is the published rate of one lock in millions of acquire and release pairs a
// second, for locks in host memory and in device memory (SwordBox §6).
const publishedPairs = 0.5

// publishedClients is the largest number of clients with the published program in the simulator.
// That program puts the requests of all clients on the connection of one of them; with more
// clients, answers arrive after the ACK timers of the waiting clients.
const publishedClients = 64

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
		{key: "misses-switch", name: "switch locks, hardened, device memory, " +
			"misses=switch", load: Words{Device: true, Switch: replace("", "switch")}},
		{key: "misses-wait", name: "switch locks, hardened, device memory, misses=wait", load: Words{Device: true, Switch: replace("", "wait")}},
		{key: "no-delay", name: "switch locks, hardened, device memory, misses=wait, switch without " +
			"delay", load: Words{Device: true, Switch: direct}, on: OnSim},
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
		{key: "as-is-device", name: "device memory, switch as it " +
			"is", load: Words{Device: true, Switch: Switch{Action: AsIs}}, on: OnRack, chosen: true},
	}
}
