package machines

import (
	"maps"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
)

// The clock of a machine comes by the way with the smallest error, also against the direction of a
// measurement.
func TestClocks(t *testing.T) {
	r, err := rackfile.Parse([]byte(`
machines:
  - {name: m1, ssh: ssh://10.0.0.1}
  - {name: m2, ssh: ssh://10.0.0.2}
  - {name: m3, ssh: ssh://10.0.0.3}
  - {name: m4, ssh: ssh://10.0.0.4}
hosts: [{name: cn0, role: compute}]
`))
	if err != nil {
		t.Fatal(err)
	}
	s := func(ahead, shortest time.Duration) trunk.Stats { return trunk.Stats{Ahead: ahead, Shortest: shortest} }
	got := Clocks(r, map[End]trunk.Stats{
		{"leaf0-leaf1", "leaf1"}: s(-time.Second, 20), // m1 is a second behind m2
		{"leaf0-leaf1", "leaf0"}: s(2*time.Second, 900),
		{"leaf1-leaf2", "leaf1"}: s(time.Minute, 10),
		{"leaf0-leaf2", "leaf0"}: s(time.Hour, 5000),
		{"leaf0-leaf3", "leaf0"}: s(time.Hour, 0), // it has never worked
	})
	want := map[string]Clock{"m1": {}, "m2": {time.Second, 10}, "m3": {time.Second + time.Minute, 15}}
	if !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if got := Clocks(&rackfile.Rack{}, nil); got != nil {
		t.Errorf("%v", got)
	}
}
