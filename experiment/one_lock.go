package experiment

// oneLock is Sherman's lock micro-benchmark: each client repeats CAS until it has the lock, and
// releases it without accessing any data that the lock might protect.
var oneLock = Experiment{
	Name:     "one-lock",
	Short:    "rate at which 1 to 256 clients take and release one lock in host or NIC memory, also if the switch replaces CAS by WRITE",
	Figure:   "Sherman §4 (lock micro-benchmark); SwordBox fig. 4 and 10, and the rate of one lock in §6",
	Examples: []string{"--on rack --series host,switch --clients 1,16"},
	Sim:      "20 s", Rack: "1 min", Target: "lock", Cost: "connectx5-dpdk",
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
