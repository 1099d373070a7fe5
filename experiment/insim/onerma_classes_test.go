package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

// In one queue with WRITEs by RoCEv2, 1RMA gives way to them. With a queue of its own and equal weights,
// each transport has half of the link; a queue that leaves first leaves nothing to the other one.
func TestClassesOfTransports(t *testing.T) {
	for _, c := range []struct {
		class       string
		one, others [2]float64 // bounds of the shares of the link
	}{
		{experiment.ClassShared, [2]float64{0, 0.1}, [2]float64{0.9, 1}},
		{experiment.ClassWeights, [2]float64{0.46, 0.52}, [2]float64{0.46, 0.52}},
		{experiment.ClassStrict, [2]float64{0.94, 1}, [2]float64{0, 0.03}},
	} {
		r := solo(t, experiment.OneRMA{Kind: experiment.SoloClasses, Class: c.class, First: 15, Span: 2 * time.Millisecond})
		if r.Goodput < c.one[0] || r.Goodput > c.one[1] || r.RoCE < c.others[0] || r.RoCE > c.others[1] {
			t.Errorf("%s: 1RMA has %.3f of the link, RoCEv2 %.3f; want %v and %v", c.class, r.Goodput, r.RoCE, c.one, c.others)
		}
	}
	alone := solo(t, experiment.OneRMA{Kind: experiment.SoloClasses, Class: experiment.ClassShared, Only: true, First: 15, Span: 2 * time.Millisecond})
	if alone.Goodput < 0.94 || alone.RoCE != 0 {
		t.Errorf("alone: %+v", alone)
	}
}
