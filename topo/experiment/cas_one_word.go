package experiment

import "github.com/rdmalab/rdmalab/topo/papers"

// casOneWord measures CAS on one word: the cost of the NIC's serialisation of atomics, and the gain
// of replacing them.
var casOneWord = Experiment{
	Name:   "cas-one-word",
	Short:  "CAS on one word by 1 to 64 clients: in host and NIC memory, and replaced by WRITE in the switch",
	Figure: "SwordBox fig. 10 (CAS replaced by one core of a middlebox), with the limits of fig. 4",
	Long: "Clients, each with one CAS in flight, all work on the same word of a memory server. The series\n" +
		"differ in where the word is, and in what the switch does. Series host and device: plain CAS, in host\n" +
		"memory and in the NIC's memory. Series hardened and published: the switch replaces CAS by WRITE,\n" +
		"under hardened or published rules; in the simulator it is as slow as a middlebox, and series\n" +
		"line-rate has a switch at line rate. Series as-is leaves the rules of the rack's switch unchanged.\n" +
		"For the other series the switch gets the rules that they need, and its earlier rules back at the\n" +
		"end.\n\n" +
		"On a rack the word is the last one of the server's shared memory, or of the lock table on its NIC.\n" +
		"Nothing else may use it.",
	Sim: "5 s", Rack: "1 min", Cost: "connectx5-dpdk",
	New: func() Body {
		return &wordBody{list: casSeries(), clients: []int{1, 2, 4, 8, 16, 32, 64}}
	},
}

// middleboxCAS returns the CAS→WRITE a second of fig. 10 in millions, by numbers of requests in
// flight (the authors' data).
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
