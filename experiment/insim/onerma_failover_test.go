package insim

import (
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
)

// Figure 9: after the death of a replica's NIC all GETs have a value, and after 20 round trips they
// are as fast as later ones.
func TestFailoverOfOneRMA(t *testing.T) {
	r := solo(t, experiment.OneRMA{Kind: experiment.SoloFailover, Hosts: 3, First: 15, Span: 300 * time.Microsecond})
	f := r.Failover
	t.Logf("%+v", f)
	if f.Steady < 4 || f.Steady > 20 {
		t.Errorf("steady after %.1f round trips", f.Steady)
	}
	before, failed, after := f.Bins[f.Before-2], f.Bins[f.Before], f.Bins[len(f.Bins)-2]
	if before.Median < 1.5 || before.Median > 3 || after.Median > 1.2*before.Median || failed.Max < 5 || after.Count < 0.8*before.Count {
		t.Errorf("before %+v, at the failure %+v, after %+v", before, failed, after)
	}
}
