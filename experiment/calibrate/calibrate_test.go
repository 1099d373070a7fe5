package calibrate

import (
	"strings"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

func model(t *testing.T, name string) *cost.Model {
	t.Helper()
	m, err := costs.Builtin(name)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// The built-in model reproduces the published figures.
func TestConnectX5IsCalibrated(t *testing.T) {
	figures, err := Run(model(t, "connectx5"))
	if err != nil {
		t.Fatal(err)
	}
	if len(figures) != len(Figures())-1 {
		t.Errorf("%d figures of %d were measured, want all but that of the middlebox", len(figures), len(Figures()))
	}
	var b strings.Builder
	if err := WriteTable(&b, figures); err != nil {
		t.Error(err)
	}
	t.Log("\n" + b.String())
	for i := range figures {
		if f := &figures[i]; !f.OK() {
			t.Errorf("%s: %.3g %s, published %.3g", f.Name, f.Measured, f.Unit, f.Published)
		}
	}
}

// The rate of rewritten packets is limited by one core of the middlebox.
func TestMiddleboxIsCalibrated(t *testing.T) {
	for _, f := range Figures() {
		if !f.middlebox {
			continue
		}
		if err := f.Run(model(t, "connectx5-dpdk")); err != nil || !f.OK() {
			t.Errorf("%s: %.3g %s, published %.3g: %v", f.Name, f.Measured, f.Unit, f.Published, err)
		}
	}
}

// plants change one number of the model each, by about a tenth. The comparison that the plant names
// must fail, and no other.
var plants = []struct {
	name  string
	spoil func(*cost.Model)
	wrong string
}{
	{"word of host memory", func(m *cost.Model) { m.NIC.Atomic.Word.Host = 3_300_000 }, "CAS, one word of host memory"},
	{"word of device memory", func(m *cost.Model) { m.NIC.Atomic.Word.Device = 8_000_000 }, "CAS, one word of device memory"},
	{"WRITE per queue pair", func(m *cost.Model) { m.NIC.Write.QP.Host = 17_000_000 }, "WRITE, one QP, one word of host memory"},
	{"WRITE to device memory per queue pair", func(m *cost.Model) { m.NIC.Write.QP.Device = 18_600_000 }, "WRITE, one QP, one word of device memory"},
	{"atomics per queue pair", func(m *cost.Model) { m.NIC.Atomic.QP.Host = 3_000_000 }, "CAS, independent words, one QP"},
	{"all atomics", func(m *cost.Model) { m.NIC.Atomic.Total = 50_000_000 }, "CAS, independent words, 20 QPs"},
	{"all READs", func(m *cost.Model) { m.NIC.Read.Total = 77_000_000 }, "READ of 8 B, 20 QPs"},
	{"all WRITEs", func(m *cost.Model) { m.NIC.Write.Total = 106_000_000 }, "WRITE of 8 B, 20 QPs"},
	{"WRITEs per queue pair", func(m *cost.Model) { m.NIC.Write.QP.Host = 15_000_000 }, "QPs for 95 % of all 8 B WRITEs"},
	{"PCIe latency of READ", func(m *cost.Model) { m.NIC.Read.Latency.Host += 150 }, "READ of 64 B, latency, no switch"},
	{"latency of WRITE", func(m *cost.Model) { m.NIC.Write.Latency.Host += 150 }, "WRITE of 64 B, latency, no switch"},
	{"PCIe latency of atomics", func(m *cost.Model) { m.NIC.Atomic.Latency.Host += 150 }, "CAS, latency, no switch"},
	{"link rate", func(m *cost.Model) { m.Link.Rate = 40_000_000_000 }, "WRITE of 64 KiB, payload"},
	{"core of the switch", func(m *cost.Model) { m.Switch.Rewrite = 3_100_000 }, "WRITE, one QP, rewritten by the switch"},
}

// Calibration finds each planted number.
func TestPlantedFiguresAreSeen(t *testing.T) {
	for _, p := range plants {
		t.Run(p.name, func(t *testing.T) {
			m := model(t, "connectx5-dpdk")
			p.spoil(m)
			seen := false
			for _, f := range Figures() {
				if f.Name != p.wrong {
					continue
				}
				seen = true
				if err := f.Run(m); err != nil {
					t.Fatal(err)
				}
				if f.OK() {
					t.Errorf("%s: %.3g %s is accepted", f.Name, f.Measured, f.Unit)
				}
			}
			if !seen {
				t.Errorf("there is no figure %q", p.wrong)
			}
		})
	}
}

// Each comparison fails for one of the plants, so there is none that always succeeds.
func TestEveryFigureIsPlanted(t *testing.T) {
	for _, f := range Figures() {
		planted := false
		for _, p := range plants {
			planted = planted || p.wrong == f.Name
		}
		if !planted {
			t.Errorf("nothing shows that %q can fail", f.Name)
		}
	}
}

// A longer latency does not reduce a rate; packets only take longer.
func TestLatencyIsNoOccupancy(t *testing.T) {
	m := model(t, "connectx5")
	l := Load{Op: verbs.OpWrite, Bytes: 8, Pairs: 1, Depth: 128}
	before, err := l.throughput(m)
	if err != nil {
		t.Fatal(err)
	}
	m.NIC.Write.Latency.Host += time.Microsecond
	after, err := l.throughput(m)
	if err != nil || after < 0.99*before {
		t.Errorf("%.3g WRITEs a second, %.3g with one microsecond more latency: %v", before, after, err)
	}
}

// Two runs with the same seed are equal, event by event.
func TestCalibrationIsRepeatable(t *testing.T) {
	m := model(t, "connectx5")
	l := Load{Op: verbs.OpWrite, Bytes: 64, Pairs: fleet, Depth: 8}
	a, err := l.run(m, (*run).stream)
	if err != nil {
		t.Fatal(err)
	}
	b, err := l.run(m, (*run).stream)
	if err != nil || a.count != b.count || a.rack.Events() != b.rack.Events() || a.rack.Now() != b.rack.Now() {
		t.Errorf("%d operations in %d events, then %d in %d: %v", a.count, a.rack.Events(), b.count, b.rack.Events(), err)
	}
}
