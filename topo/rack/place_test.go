package rack

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/topo/spec"
)

func TestProcessors(t *testing.T) {
	const auto, none = spec.AutoCPU, spec.NoCPU
	for _, c := range []struct {
		name       string
		sw, host   int
		allowed    []int
		wantSwitch []int
		wantHost   []int
	}{
		{"two", auto, auto, []int{0, 1}, []int{1}, []int{0}},
		{"one", auto, auto, []int{3}, nil, nil},
		{"some of many", auto, auto, []int{2, 5, 7}, []int{7}, []int{2, 5}},
		{"off", none, none, []int{0, 1}, nil, nil},
		{"switch off", none, auto, []int{0, 1}, nil, nil},
		{"host off", auto, none, []int{0, 1}, []int{1}, nil},
		{"switch given", 0, auto, []int{0, 1, 2}, []int{0}, []int{1, 2}},
		{"switch given elsewhere", 9, auto, []int{0, 1}, []int{9}, []int{0, 1}},
		{"host given", auto, 1, []int{0, 1}, []int{1}, []int{1}},
		{"all given on one", 0, 0, []int{0}, []int{0}, []int{0}},
	} {
		s := &spec.Rack{Switch: spec.Switch{CPU: c.sw}, Hosts: []spec.Host{{Name: "cn0", CPU: c.host}}}
		if got := processors(s, spec.SwitchName, c.allowed); !slices.Equal(got, c.wantSwitch) {
			t.Errorf("%s: switch on %v, want %v", c.name, got, c.wantSwitch)
		}
		if got := processors(s, "cn0", c.allowed); !slices.Equal(got, c.wantHost) {
			t.Errorf("%s: host on %v, want %v", c.name, got, c.wantHost)
		}
	}
}
