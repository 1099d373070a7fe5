package device

import (
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// An application that blocks is informed of a fault of its NIC by completions and events.
func TestInjectedFaults(t *testing.T) {
	for name, inject := range map[string]struct {
		fault func(d *Device, n *node) error
		want  []verbs.AsyncKind
	}{
		"QP": {func(d *Device, n *node) error { return d.FailQP(n.qp.QPN()) }, []verbs.AsyncKind{verbs.EventQPFatal}},
		"CQ": {func(d *Device, n *node) error { return d.OverrunCQs(n.qp.QPN()) }, []verbs.AsyncKind{verbs.EventCQErr, verbs.EventQPFatal}},
	} {
		t.Run(name, func(t *testing.T) {
			d, a, _ := newPair(t, -1, memcable.Config{})
			must(t, a.qp.PostRecv(verbs.RecvWR{ID: 5, SGL: []verbs.SGE{a.mr.SGE(0, 8)}}))
			injected := make(chan error, 1)
			go func() { injected <- inject.fault(d[0], a) }()
			if wc := a.one(t); wc.ID != 5 || wc.Status != verbs.WRFlushErr {
				t.Errorf("%+v", wc)
			}
			must(t, <-injected)
			var got []verbs.AsyncKind
			for range inject.want {
				ev, err := a.ctx.NextAsyncEvent(a.in(20 * time.Second))
				must(t, err)
				got = append(got, ev.Kind)
			}
			if !slices.Equal(got, inject.want) {
				t.Errorf("events %v, want %v", got, inject.want)
			}
		})
	}
}
