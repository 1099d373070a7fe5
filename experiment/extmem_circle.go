package experiment

// circleFigure compares packets that are deposited in a server's memory with packets that recirculate
// in the switch until their entry has come: the alternative that the authors leave open (section 6).
func circleFigure() figure {
	f := figure{
		key: "recirculate", title: "lookups whose packet is deposited in a server, or recirculates in the switch; one server", x: "bytes of the packet",
		unit: "us, passes, Mops", format: "%.2f",
		why: []string{
			"the authors give no numbers; they expect recirculation to save bandwidth to the server, which is not measured here",
			"a packet that recirculates takes the chip's bandwidth once more for each pass, and a chip rounds its wait up to whole passes: the bandwidth of these ports is not limited here",
		},
		inputs: []string{"a pass of 450 ns is the switch's delay of the cost file; the passes are the measured wait divided by it"},
	}
	for _, circle := range []bool{false, true} {
		series := map[bool]string{false: "deposited", true: "recirculating"}[circle]
		for _, n := range []string{"64", "512", "1500"} {
			l := Lookups{Where: LookupRemote, Mode: Hardened, Bytes: int(number(n)), Window: 1, Flows: 16, Servers: 1, Circle: circle}
			f.add(ours("added latency, us", series, n, l, func(o *outcome) float64 { return 1e6 * o.added.Seconds() }))
			many := l
			many.Window, many.Flows = 64, 1024
			f.add(ours("lookups, Mops", series, n, many, func(o *outcome) float64 { return o.lookups.Rate / 1e6 }))
			if circle {
				f.add(ours("passes of a packet, alone", series, n, l, func(o *outcome) float64 { return o.lookups.Passes }))
				f.add(ours("passes of a packet, 64 on their way", series, n, many, func(o *outcome) float64 { return o.lookups.Passes }))
			}
		}
	}
	return f
}
