package experiment

import "github.com/rdmalab/rdmalab/experiment/papers"

// casOneWord measures the rate of CAS on one word. The NIC executes these CAS one after the other,
// and the switch can replace them by WRITEs, which are faster.
var casOneWord = Experiment{
	Name:     "cas-one-word",
	Short:    "CAS on one word by 1 to 64 clients: in host and NIC memory, and replaced by WRITE in the switch",
	Figure:   "SwordBox fig. 10 (CAS replaced by a middlebox with one core), and the largest rates of CAS in fig. 4",
	Examples: []string{"--on rack --series host,hardened --clients 1,16"},
	Sim:      "5 s", Rack: "1 min", Target: "word", Cost: "connectx5-dpdk",
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
