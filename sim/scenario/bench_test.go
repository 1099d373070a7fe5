package scenario

import "testing"

// BenchmarkTransport runs one seed of the scenario transport; its rate of events is that of the
// whole stack.
func BenchmarkTransport(b *testing.B) {
	s, err := Find("transport")
	if err != nil {
		b.Fatal(err)
	}
	var events uint64
	seed := uint64(0)
	for b.Loop() {
		seed++
		r := s.Run(seed, Options{})
		if r.Err != nil {
			b.Fatal(r.Err)
		}
		events += r.Events
	}
	b.ReportMetric(float64(events)/b.Elapsed().Seconds()/1e6, "Mevents/s")
}
