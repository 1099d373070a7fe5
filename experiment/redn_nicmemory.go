package experiment

// rednOnNIC is the outlook of section 6 of the paper: the work requests of a program are in memory of
// the NIC that RDMA reaches, so that it fetches none of them over PCIe.
func rednOnNIC() figure {
	f := figure{
		key: "nicmemory", title: "programs in host memory, and in the memory of the NIC", x: "what", unit: "µs; million a second", format: "%.2f",
		why: []string{
			"the authors give no numbers. What gains is what waits for the fetch of an entry: every ENABLE; a chain in WQ order or completion order has none",
		},
		inputs: []string{"the time of an ENABLE in the NIC's memory, 150 ns: the cost file takes from the 350 ns of Figure 8 the 200 ns by which its READ of device memory is faster than one of host memory"},
	}
	for _, onNIC := range []bool{false, true} {
		series := map[bool]string{false: "host memory", true: "NIC memory"}[onNIC]
		for _, mode := range []string{"WQ order", "completion order", "doorbell order"} {
			f.add(ours("chain of 50 no-ops, µs", series, mode, RedN{Kind: ChainOrder, Way: mode, N: 50, OnNIC: onNIC}, (*outcome).chainMean))
		}
		for _, c := range rednConstructs {
			f.add(ours("constructs, million a second", series, c, RedN{Kind: ChainConstruct, Way: c, OnNIC: onNIC}, func(o *outcome) float64 { return o.chain.Rate / 1e6 }))
		}
		for _, way := range []struct{ name, way string }{{"lookup of 64 bytes", WayRecycled}} {
			f.add(ours("verbs alone, µs", series, way.name, RedN{Kind: ChainLookup, Way: way.way, Bytes: 64, OnNIC: onNIC}, (*outcome).chainMean))
		}
		f.add(ours("verbs alone, µs", series, "walk of 8 nodes", RedN{Kind: ChainList, Way: WayRecycled, Bytes: 64, N: 8, OnNIC: onNIC}, (*outcome).chainMean))
	}
	return f
}
