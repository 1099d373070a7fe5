package experiment

import "fmt"

// casOnRack are the columns of figure atomics on a rack, which has one kind of priority for data: that of its file.
var casOnRack = []string{ccIdle, ccSame, ccApart}

// The panels of figure atomics on a rack.
const casMean, casP99, casBulk = "mean, us", "99 %, us", "bulk: share of the link"

// atomicsOnRack is figure atomics: the client sends a CMP_SWAP when it has the answer of the one before.
func atomicsOnRack(quick bool) figure {
	f := figure{
		key: "atomics", named: true, x: "beside", unit: "us, share of the link", format: "%.3g",
		title: "CMP_SWAPs, one at a time, to a server whose port four others fill",
		why: []string{
			"this figure needs a compute host with a tos of its own: that of " + SharedRack + " (dcqcn) or topo/racks/pfc-slow.yaml (PFC alone)",
			"times are those that the client's program measures, by the rack's clock",
		},
	}
	for _, x := range casOnRack {
		l := ccAtomics{x, ccByFile, quick}
		f.twinOf(casMean, x, quick, l, func(o *SceneResult) float64 { return o.Mean.Seconds() * 1e6 })
		f.twinOf(casP99, x, quick, l, func(o *SceneResult) float64 { return o.Tail.Seconds() * 1e6 })
		if x != ccIdle {
			f.twinOf(casBulk, x, quick, l, func(o *SceneResult) float64 { return sumOf(o.Shares[1:]) })
		}
	}
	return f
}

// ccByFile is the algorithm of a load on a rack, which has that of its file.
const ccByFile = "as the rack file says"

// readsOnRack is figure reads, over a shared connection whose clients slow down by rates of their own.
func readsOnRack(quick bool) figure {
	f := figure{
		key: "reads", named: true, x: "hosts that fill the port", unit: "share of the link", format: "%.3f",
		title: "four clients READ over one connection of the switch, and others fill the port of one of them",
		why:   []string{"this figure needs congestion control, and one server: rdmalab up -f " + SharedRack},
	}
	for _, n := range readsBeside {
		l := ccShared{ccReads, "all", n, quick}
		f.twinOf("the client with the full port", fmt.Sprint(n), quick, l, func(o *SceneResult) float64 { return o.Shares[0] })
		f.twinOf("each other client", fmt.Sprint(n), quick, l, otherReader)
	}
	return f
}

// readsBeside is how many hosts fill the port of a client in figure reads.
var readsBeside = []int{0, 1, 4}

// otherReader is the share of each client of the load ccReads whose port is not full.
func otherReader(o *SceneResult) float64 { return sumOf(o.Shares[1:readers]) / (readers - 1) }

// waitsRackDemands are what must hold on the rack, whatever the simulator has.
var waitsRackDemands = []figureDemand{
	{"atomics", "own priority: the rack's 99 % of a CMP_SWAP is at most twice that of an idle port", func(at func(p, s, x string) float64) bool {
		return at(casP99, twinOnRack, ccApart) <= 2*at(casP99, twinOnRack, ccIdle)
	}},
	{"atomics", "same priority: the rack's 99 % is more than twice that of an idle port", func(at func(p, s, x string) float64) bool {
		return at(casP99, twinOnRack, ccSame) > 2*at(casP99, twinOnRack, ccIdle)
	}},
	{"reads", "on the rack the other clients of the shared connection have at least 0.95 of what they have when no port is full", func(at func(p, s, x string) float64) bool {
		const panel = "each other client"
		return at(panel, twinOnRack, "1") >= .95*at(panel, twinOnRack, "0") && at(panel, twinOnRack, "4") >= .95*at(panel, twinOnRack, "0")
	}},
}
