package experiment

import (
	"fmt"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// rednRings are the numbers of rings of Table 1's measurement. The last one is enough for every NIC.
var rednRings = []int{1, 2, 4, 8, 16, 32}

// rednUnits is Table 1: how fast NICs with different numbers of processing units execute the work
// requests of send rings.
func rednUnits(quick bool) figure {
	f := figure{
		data: papers.MustLoad("redn/table1"), key: "table1", title: "WRITEs of 64 bytes that a NIC executes, by the number of rings", format: "%.1f", unit: "million a second",
		why: []string{
			"a unit here takes the 170 ns that figure 8 has for a further no-op; by the authors' table it takes 127 to 143 ns for a verb, and they do not say which",
			"ConnectX-3 and ConnectX-6 have the time of ConnectX-5 for an entry, because no source gives theirs",
		},
		inputs: []string{"the number of units of each NIC; the rates are not: they follow from it and from the time of an entry by figure 8"},
	}
	rings := rednRings
	if quick {
		rings = []int{1, 32}
	}
	for _, n := range rings {
		for _, x := range f.data.Columns {
			c := ours("", fmt.Sprintf("%d rings", n), x, RedN{Kind: ChainRate, Way: "WRITE", Bytes: 64, Clients: n, Cost: x}, func(o *outcome) float64 { return o.chain.Rate / 1e6 })
			if n == rings[len(rings)-1] {
				c.their, c.theirs = "rate", f.at("", "rate", x)
			}
			f.add(c)
		}
	}
	return f
}
