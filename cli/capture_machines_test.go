package cli

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

const twoMachines = `
machines:
  - {name: m1, ssh: ssh://10.0.0.1}
  - {name: m2, ssh: ssh://10.0.0.2}
fabric: {leaves: 3, spines: 0}
hosts:
  - {name: cn0, role: compute}
  - {name: ms0, role: memory}
  - {name: ms1, role: memory}
`

// Links go to the switches that have them, and interfaces have the names of machines that tell them apart.
func TestCaptureOfMachines(t *testing.T) {
	r, err := rackfile.Parse([]byte(twoMachines))
	if err != nil {
		t.Fatal(err)
	}
	some := captureAt(r, []string{"cn0", "ms0", "leaf0-leaf1"})
	if !slices.Equal(some["leaf0"], []string{"cn0", "leaf0-leaf1"}) || !slices.Equal(some["leaf1"], []string{"ms0"}) || len(some) != 2 {
		t.Errorf("%v", some)
	}
	if all := captureAt(r, nil); !slices.Equal(slices.Sorted(maps.Keys(all)), []string{"leaf0", "leaf1", "leaf2"}) || all["leaf0"] != nil {
		t.Errorf("%v", all)
	}
	slice := *r
	slice.Machine = "m2"
	if own := captureAt(&slice, nil); !slices.Equal(slices.Sorted(maps.Keys(own)), []string{"leaf1"}) {
		t.Errorf("on m2: %v", own)
	}
	m := &machinesCapture{rack: r}
	names := map[string]bool{}
	for at, list := range map[string]string{"leaf0": "cn0 up,leaf0-leaf1 down,leaf0-leaf2 up", "leaf1": "ms0 up,leaf0-leaf1 down", "leaf2": "ms1 down,leaf0-leaf2 up"} {
		for name := range strings.SplitSeq(list, ",") {
			names[m.rename(at)(name)] = true
		}
	}
	want := []string{"cn0@m1 up", "leaf0-leaf1@m1 down", "leaf0-leaf1@m2 down", "leaf0-leaf2@leaf2 up", "leaf0-leaf2@m1 up", "ms0@m2 up", "ms1@m1 down"}
	if got := slices.Sorted(maps.Keys(names)); !slices.Equal(got, want) {
		t.Errorf("%v\nwant %v", got, want)
	}
}
