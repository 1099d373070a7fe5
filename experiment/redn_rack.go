package experiment

import "slices"

// rednRackChoices says how figures on a rack differ from those of the model.
var rednRackChoices = []string{
	"times are those of the emulated NICs and of processes that share the processors of this machine; only ratios and shapes compare",
	"each time is the median of eleven runs, and of each run; chains of no-ops and NOP run 25 times, requests a second, figures 14 to 16 once",
	"requests a second: one queue pair with 128 requests in flight, 16 atomics; column ADD is the measurement of CAS",
	"figure 16: the process dies at 1 s and is started again a second later; it takes over the table that it finds",
	"two-sided, events: the process sleeps until the NIC wakes it up",
}

// rednTimes are the keys of the figures that show times of requests. On a rack they show medians
// instead of means.
var rednTimes = []string{"7", "8", "10", "11", "13", "14", "15"}

// rednChainsOnRack lists the figures of redn for a rack. It leaves out the cells that only the
// simulator's model has, and the panels "verbs alone", because processes take time on a rack. It
// merges the panels "with programs" into unnamed ones.
func rednChainsOnRack(quick bool) (list []figure) {
	for _, f := range redn(quick) {
		f.why, f.inputs = []string{"the authors' numbers are of hardware"}, nil
		cells := f.cells
		f.cells = nil
		for _, c := range cells {
			if c.panel == rednPanels[0].name {
				continue
			}
			if c.panel == rednPanels[1].name {
				c.panel = ""
			}
			if slices.Contains(rednTimes, f.key) && c.panel != rednTail {
				c.value = (*outcome).chainMedian
			}
			if c.onRack(quick) {
				f.add(c)
			}
		}
		list = append(list, f)
	}
	return list
}

// onRack changes the load of a cell of redn into one for a rack. It sets the modelled times of
// processes (Trip, Serve, Wake) to 0, because real processes take time themselves. It reports
// whether a rack has this load. A quick measurement of times has a quarter of the requests in each
// run.
func (c *figureCell) onRack(quick bool) bool {
	switch l := c.load.(type) {
	case RedN:
		l.Trip, l.Serve, l.Wake, l.Few = 0, 0, 0, quick
		c.load = l
		return c.series != rednServers[3].name && c.x != "MAX"
	case rednLargest:
		l.Trip, l.Serve, l.Wake, l.Few = 0, 0, 0, quick
		c.load = l
	case NIC:
		if l.OneWord {
			return false
		}
		l.Pairs, l.Depth = 1, 128
		if l.Op == "cas" || l.Op == "add" {
			l.Depth = 16
		}
		c.load = l
	}
	return true
}
