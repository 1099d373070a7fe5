package experiment

import (
	"fmt"
	"time"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
)

// The columns of figure atomics: what fills the port of the server beside CMP_SWAPs, and how they are kept apart.
const (
	ccIdle     = "idle"
	ccSame     = "same priority"
	ccSamePFC  = "same, PFC"
	ccApart    = "own priority"
	ccApartPFC = "own, PFC"
)

// ccAtomics is a load of Platform.Scene of a client that sends a CMP_SWAP each 100 us, beside bulk senders.
type ccAtomics struct {
	beside    string // a column
	algorithm string // ccPFC: none
	quick     bool
}

const (
	bulkSenders = 4
	casApart    = 100 * time.Microsecond
)

func (l ccAtomics) label() string { return fmt.Sprintf("atomics: %s, %s", l.beside, l.algorithm) }

func (l ccAtomics) effort() float64 { return 5 }

func (l ccAtomics) scene(uint64) Scene {
	p, _ := congestion.Profile(congestion.ProfilePaper, paperRate)
	if p.Algorithm = l.algorithm; l.algorithm == ccPFC {
		p.Algorithm = congestion.AlgorithmNone
	}
	s := Scene{
		Hosts: 2 + bulkSenders, Params: p, Delay: dcqcnDelay, Lossless: l.beside == ccSamePFC || l.beside == ccApartPFC, XOFF: ccXOFF, Limit: 4 << 20,
		Marks: paperMarks, Window: 1024, Depth: 8, Span: pick(l.quick, 40*time.Millisecond, 200*time.Millisecond),
	}
	cas := SceneFlow{From: 1, To: 0, Atomic: true, Apart: l.beside == ccApart || l.beside == ccApartPFC}
	for at := time.Duration(0); at < s.Span; at += casApart {
		cas.Messages = append(cas.Messages, SceneMessage{at, 8})
	}
	s.Flows = []SceneFlow{cas}
	if l.beside != ccIdle {
		for i := range bulkSenders {
			s.Flows = append(s.Flows, SceneFlow{From: 2 + i, To: 0})
		}
	}
	return s
}

func ccCAS(quick bool) figure {
	f := figure{
		key: "atomics", title: "a CMP_SWAP each 100 us to a server whose port four others fill", x: "beside", unit: "us, times the time alone", format: "%.3g",
		why: []string{
			"there are no published numbers: the wait of an atomic in a full port, and what a priority of its own is worth",
			"without PFC a queue has 4 MB here: nothing is lost, and without congestion control it has what is in flight, 2 MB; with dcqcn the 99 % is of the start, when all send at the rate of the link",
		},
	}
	for _, a := range []string{ccPFC, congestion.AlgorithmDCQCN} {
		for _, x := range []string{ccIdle, ccSame, ccSamePFC, ccApart, ccApartPFC} {
			l := play(ccAtomics{x, a, quick})
			panel := a
			if a == ccPFC {
				panel = "no congestion control"
			}
			f.add(
				ours(panel, "mean, us", x, l, func(o *outcome) float64 { return o.scene.Mean.Seconds() * 1e6 }),
				ours(panel, "99 %, times alone", x, l, func(o *outcome) float64 { return o.scene.P99 }),
				ours(panel, "bulk: share of the link", x, l, func(o *outcome) float64 { return sumOf(o.scene.Shares[1:]) }),
			)
		}
	}
	return f
}

// atomicsDemands are what must hold in figure atomics.
var atomicsDemands = []figureDemand{
	{"atomics", "own priority: the 99 % of a CMP_SWAP is at most twice that of an idle port, with and without PFC and dcqcn", func(at func(p, s, x string) float64) bool {
		ok := true
		for _, panel := range []string{"no congestion control", congestion.AlgorithmDCQCN} {
			for _, x := range []string{ccApart, ccApartPFC} {
				ok = ok && at(panel, "99 %, times alone", x) <= 2*at(panel, "99 %, times alone", ccIdle)
			}
		}
		return ok
	}},
	{"atomics", "same priority: the 99 % is more than twice that of an idle port", func(at func(p, s, x string) float64) bool {
		const panel, name = "no congestion control", "99 %, times alone"
		return at(panel, name, ccSame) > 2*at(panel, name, ccIdle) && at(panel, name, ccSamePFC) > 2*at(panel, name, ccIdle)
	}},
}
