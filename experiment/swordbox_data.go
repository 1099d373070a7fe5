package experiment

import (
	"strconv"

	"github.com/rdmalab/rdmalab/experiment/papers"
)

// paperMops returns the throughput of Clover in millions of operations a second that the SwordBox
// paper measured (figure 11, from its authors' data), with a percentage of writes. steer is none,
// write, read or both: what the switch steers. If the figure has no point for this number of
// clients, paperMops returns the value at the nearest number. 0 means that the figure has no such
// curve.
func paperMops(writes float64, steer string, clients int) float64 {
	v, _ := papers.MustLoad("swordbox/fig11").Near(strconv.FormatFloat(writes, 'g', -1, 64), steer, float64(clients))
	return v / 1e6
}

// steeringClaims has the factors that the paper's text claims for steering of READs and writes over
// no steering, by percentage of writes: throughput (fig. 11) and bytes an operation (fig. 12). For
// 50 and 100 % writes, the authors' data give 32 and 46 times the throughput at 280 clients, but 22
// and 32 times at 392. In their data of fig. 12, the byte counters have probably wrapped at 32
// bits.
var steeringClaims = map[float64]struct{ gain, bytes float64 }{0: {gain: 1}, 5: {2.8, 2.5}, 50: {32, 16}, 100: {gain: 46}}
