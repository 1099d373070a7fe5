package device

import (
	"testing"

	"github.com/rdmalab/rdmalab/e2e/memcable"
	"github.com/rdmalab/rdmalab/e2e/verbstest"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire"
)

// TestConformance runs the suite of the verbs interfaces on devices of this process.
func TestConformance(t *testing.T) {
	for name, spin := range spins {
		t.Run(name, func(t *testing.T) {
			conform(t, func(t *testing.T) [2]*Device { return openPair(t, spin, memcable.Config{}) })
		})
		t.Run("direct links, "+name, func(t *testing.T) {
			conform(t, func(t *testing.T) [2]*Device { return openDirect(t, spin) })
		})
	}
}

func conform(t *testing.T, open func(t *testing.T) [2]*Device) {
	verbstest.Run(t, func(t *testing.T) *verbstest.World {
		d := open(t)
		w := &verbstest.World{
			Faults: faults(d),
			Again:  func(_ testing.TB, nic int) verbs.Context { return d[nic].Context() },
		}
		for i := range d {
			w.Contexts[i] = d[i].Context()
			m, err := rdmacm.NewCM(rdmacm.CMConfig{Context: w.Contexts[i]})
			must(t, err)
			t.Cleanup(func() { must(t, m.Close()) })
			w.Managers[i] = m
		}
		return w
	})
}

type faults [2]*Device

func (f faults) Down(nic int)                         { f[nic].Down() }
func (f faults) Up(nic int)                           { f[nic].Up() }
func (f faults) Link(nic int, up bool)                { f[nic].SetLink(up) }
func (f faults) FailQP(nic int, n wire.QPN) error     { return f[nic].FailQP(n) }
func (f faults) OverrunCQs(nic int, n wire.QPN) error { return f[nic].OverrunCQs(n) }
