package experiment

import "github.com/rdmalab/rdmalab/experiment/papers"

// rednConstructs are the constructs of Tables 2 and 3.
var rednConstructs = []string{"if", "while unrolled", "while recycled"}

func rednCosts() figure {
	f := figure{data: papers.MustLoad("redn/table2"), key: "table2", title: "number of work requests of a construct whose operand its conditional request holds", format: "%.0f"}
	for _, c := range rednConstructs {
		for i, x := range f.data.Columns {
			f.add(figureCell{
				series: c, x: x, theirs: f.at("", c, x), load: RedN{Kind: ChainConstruct, Way: c, Held: true},
				value: func(o *outcome) float64 { return float64([]int{o.chain.Copies, o.chain.Atomics, o.chain.Controls}[i]) },
			})
		}
	}
	return f
}

func rednVerbs() figure {
	f := figure{
		data: papers.MustLoad("redn/fig7"), key: "7", title: "time of one work request of 64 bytes; a NOP runs on the client's own NIC", format: "%.2f",
		inputs: []string{"all numbers: the cost file has doorbell, completion and the latencies of WRITE, READ and atomics from this figure"},
	}
	for _, x := range []string{"NOP", "WRITE", "READ", "CAS", "ADD"} {
		l := RedN{Kind: ChainVerb, Way: x, Bytes: 64}
		if x == "NOP" {
			l = RedN{Kind: ChainOrder, Way: "WQ order", N: 1}
		}
		f.add(figureCell{series: "latency", x: x, theirs: f.at("", "latency", x), load: l, value: (*outcome).chainMean})
	}
	return f
}

func rednOrder(quick bool) figure {
	f := figure{
		data: papers.MustLoad("redn/fig8"), key: "8", title: "time of a chain of NOPs, by its length, in the three orders", format: "%.2f",
		inputs: []string{"all slopes: the soft NIC takes 170 ns for an entry, 20 ns for a WAIT and 350 ns for an ENABLE, with every cost file (softrnic/sendring)"},
	}
	for mode, x := range pairs([]string{"WQ order", "completion order", "doorbell order"}, few(f.data.Columns, quick)) {
		f.add(figureCell{series: mode, x: x, theirs: f.at("", mode, x), load: RedN{Kind: ChainOrder, Way: mode, N: int(number(x))}, value: (*outcome).chainMean})
	}
	return f
}

func rednRates() figure {
	f := figure{
		data: papers.MustLoad("redn/table3"), key: "table3", title: "rates of work requests of 64 bytes, and of constructs", format: "%.2f",
		why: []string{
			"atomics: the model has the 55 million of the SwordBox paper on independent words of the same NIC; this paper does not say on how many words its 8.4 million are",
			"READ and WRITE: as many as the link of 100 Gb/s carries, with 150 and 162 bytes a frame; the NIC of the SwordBox paper, whose rates the model has, is no " +
				"limit, and that of the authors is",
			"constructs: one queue here, and the authors' port; a NIC here executes one for each queue at the same time",
		},
		inputs: []string{
			"CAS, ADD: the NIC's total of atomics of the cost file. READ, WRITE: the rate of the link",
			"MAX, of one number: the units of the NIC, divided by the 170 ns of an entry of a ring",
		},
	}
	ops := map[string]string{"CAS": "cas", "ADD": "add", "READ": "read", "WRITE": "write"}
	for _, x := range f.data.Columns {
		c := figureCell{series: "rate", x: x, theirs: f.at("", "rate", x)}
		switch op := ops[x]; {
		case op == "cas" || op == "add":
			c.load, c.value = NIC{Op: op, Bytes: 8, Pairs: 20, Depth: 16}, (*outcome).mops
		case op != "":
			c.load, c.value = NIC{Op: op, Bytes: 64, Pairs: 20, Depth: 16}, (*outcome).mops
		case x == "MAX":
			c.load, c.value = RedN{Kind: ChainRate, Way: x, Bytes: 8, Clients: 20}, func(o *outcome) float64 { return o.chain.Rate / 1e6 }
		default:
			c.load, c.value = RedN{Kind: ChainConstruct, Way: x}, func(o *outcome) float64 { return o.chain.Rate / 1e6 }
		}
		f.add(c)
	}
	// The authors may have measured CAS on one word.
	for _, x := range []string{"CAS", "ADD"} {
		f.add(ours("", "rate, one word", x, NIC{Op: ops[x], Bytes: 8, Pairs: 20, Depth: 4, OneWord: true}, (*outcome).mops))
	}
	return f
}
