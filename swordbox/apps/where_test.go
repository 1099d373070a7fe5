package apps

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// A host with two NICs may send with the address of one through both ports; hosts without a port here, and those behind
// a trunk, have no places.
func TestPlacesOfHosts(t *testing.T) {
	r, err := rackfile.Parse([]byte(`
name: places
hosts:
  - {name: cn0, role: compute, nics: 2}
  - {name: ms0, role: memory}
  - {name: far, role: compute}
  - {name: gone, role: compute}
`))
	if err != nil {
		t.Fatal(err)
	}
	ports := map[string]int{"cn0": 0, "cn0/rxe1": 1, "ms0": 2, "far": 5}
	w := Where{Rack: r, Trunks: []int{5}, Port: func(node string) int {
		if port, ok := ports[node]; ok {
			return port
		}
		return -1
	}}
	places := w.Places()
	want := map[string][]int{"cn0": {0, 1}, "cn0/rxe1": {0, 1}, "ms0": {2}, "far": nil, "gone": nil}
	for name, list := range want {
		h, _, ok := r.Host(name)
		if got := places[h.MAC]; !ok || !slices.Equal(got, list) {
			t.Errorf("%s: %v, want %v", name, got, list)
		}
	}
}
