package experiment

import "github.com/rdmalab/rdmalab/experiment/papers"

// casOneWord measures the rate of CAS on one word. The NIC executes these CAS one after the other,
// and the switch can replace them by WRITEs, which are faster.
var casOneWord = Experiment{
	Name:     "cas-one-word",
	Short:    "CAS on one word by 1 to 64 clients: in host and NIC memory, and replaced by WRITE in the switch",
	Figure:   "SwordBox fig. 10 (CAS replaced by a middlebox with one core), and the largest rates of CAS in fig. 4",
	Examples: []string{"--on rack --series host,hardened --clients 1,16"},
	Long: func() string {
		return "Clients, each with one CAS in flight, all work on the same word of a memory server. A series is one way to do this.\n" +
			"The series differ in two ways. First, the word is in host memory of the server, or in device memory on the server's\n" +
			"NIC. Second, the switch only forwards, or it replaces each CAS by a WRITE of the new value (CAS→WRITE), which it\n" +
			"can do while it knows the value of the word. It does so by rules of action atomics (`rdmalab switch rules add\n" +
			"--help`). Rules are published, as in the SwordBox paper, or hardened, without the paper's holes (ways in which its\n" +
			"design loses data, hangs or is slow; swordbox/HOLES.md).\n\n" +
			"In the simulator, the switch of series hardened and published is as slow as the middlebox of the SwordBox paper;\n" +
			"--cost says how slow. In the other series the switch keeps up with every load (line rate).\n\n" +
			"On a rack, series as-is uses the switch's present program and rules. For every other series the experiment installs\n" +
			"the program and the rules that the series needs. At the end it restores the earlier program and rules.\n\n" +
			"The table has a line for each series and number of clients. Numbers in parentheses are the SwordBox paper's.\n\n" +
			"  CAS Mops            answered CAS, in millions per second\n" +
			"  SUCCEEDED Mops      CAS that changed the word, in millions per second\n" +
			"  LATENCY us          mean time from post to completion of a CAS, in microseconds; on a rack, clients divided by the\n" +
			"                      rate of CAS\n" +
			"  REPLACED %          percentage of the CAS that the server did not execute as CAS\n" +
			"  PAPER'S LIMIT Mops  largest rate of CAS in the SwordBox paper, or of WRITE if FROM says so, in millions per\n" +
			"                      second\n" +
			"  FROM                where in the SwordBox paper this limit is\n\n" +
			"On a rack the hosts keep the connections of their clients until the clients of all hosts have ended. The published\n" +
			"switch sends the requests of all clients on the connection of one of them, and they would fail without it (hole 4).\n" +
			"If no CAS of a line has succeeded, the exit status is 1.\n\n" +
			"On a rack the word is the last word of the memory that server --to registers: host memory or, in series device, the\n" +
			"device memory on its NIC, where Sherman keeps its locks. Stores use this memory too: stop them first."
	},
	Sim: "5 s", Rack: "1 min", Target: "word", Cost: "connectx5-dpdk",
	New: func() Body {
		return &wordBody{list: casSeries(), clients: []int{1, 2, 4, 8, 16, 32, 64}}
	},
}

// middleboxCAS returns the rates in figure 10 of the SwordBox paper for CAS that are replaced by
// WRITEs, in millions a second, by the number of requests in flight (the authors' data).
func middleboxCAS() map[int]float64 {
	data, out := papers.MustLoad("swordbox/fig10"), make(map[int]float64)
	for _, column := range data.Columns {
		if v, ok := data.At("", "replaced", column); ok {
			out[int(number(column))] = v / 1e6
		}
	}
	return out
}

func casSeries() []wordSeries {
	forward, replace := Switch{LineRate: true}, Switch{Action: ReplaceAtomics}
	published, fast := replace, replace
	published.Mode, fast.LineRate = Published, true
	const core = "fig. 10: one core of the middlebox"
	return []wordSeries{
		{key: "host", name: "CAS, host memory", limit: 3, source: "fig. 4, 10: the server's NIC", load: Words{Switch: forward}},
		{key: "device", name: "CAS, device memory", limit: 9, source: "fig. 4: the server's NIC", load: Words{Device: true, Switch: forward}},
		{key: "hardened", name: "CAS→WRITE, hardened", limit: 2.8, source: core, at: middleboxCAS(), load: Words{Switch: replace}},
		{key: "published", name: "CAS→WRITE, published", limit: 2.8, source: core, at: middleboxCAS(), load: Words{Switch: published}},
		{
			key: "line-rate", name: "CAS→WRITE, hardened, switch at line rate", limit: 18.6, source: "fig. 4: WRITEs on one queue pair",
			load: Words{Switch: fast}, on: OnSim,
		},
		{key: "as-is", name: "CAS, switch as it is", load: Words{Switch: Switch{Action: AsIs}}, on: OnRack, chosen: true},
	}
}
