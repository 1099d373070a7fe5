package experiment

// oneLock is Sherman's lock micro-benchmark: each client takes the lock by CAS, again and again
// until it has it, and releases it, without touching anything that the lock might protect.
var oneLock = Experiment{
	Name:   "one-lock",
	Short:  "lock and release of one lock by 1 to 256 clients: in host and NIC memory, and in the switch",
	Figure: "Sherman's lock micro-benchmark (on-chip lock table, §4); SwordBox fig. 4 and 10, and the lock pairs of §6",
	Long: "Clients all take the same lock: each repeats CAS until it has the lock, and releases it by a WRITE\n" +
		"of 0. The series differ in where the lock word is (host memory, or as in Sherman the NIC's memory),\n" +
		"and in what the switch does: in switch locks it replaces CAS by WRITE (SwordBox), and misses= is the\n" +
		"key of its rule that says how it answers a CAS that fails. The column REPLACED is the share of CAS\n" +
		"that reached the server as another operation. Series as-is and as-is-device leave the rules of the\n" +
		"rack's switch unchanged. For the other series the switch gets the rules that they need, and its\n" +
		"earlier rules back at the end.\n\n" +
		"On a rack the lock is the last word of the server's shared memory, or of the lock table on its NIC:\n" +
		"stop the stores first.",
	Sim: "20 s", Rack: "1 min", Cost: "connectx5-dpdk",
	New: func() Body {
		return &wordBody{list: lockSeries(), clients: []int{1, 4, 16, 64, 256}, locks: true}
	},
}

// publishedPairs is the published rate of one lock in millions of acquire and release pairs a
// second, wherever its word is (SwordBox §6).
const publishedPairs = 0.5

// publishedClients is the largest number of clients with the published program in the simulator:
// with more clients on the one borrowed connection, answers arrive after the ACK timers of the
// waiting clients.
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
