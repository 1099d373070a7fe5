package cli

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
)

// Each daemon is profiled once; all daemons of a compact rack are one process.
func TestProfiledNodes(t *testing.T) {
	const hosts = "hosts: [{name: ms0, role: memory}, {name: cn0, role: compute}]\n"
	for text, want := range map[string][2][]string{
		hosts:                       {{"switch", "ms0", "cn0"}, {"cn0", "switch"}},
		"daemons: shared\n" + hosts: {{"switch"}, {"cn0"}},
	} {
		r, err := rackfile.Parse([]byte(text))
		if err != nil {
			t.Fatal(err)
		}
		for i, names := range [][]string{nil, {"cn0", "switch", "cn0"}} {
			if nodes, err := profiledNodes(r, names); err != nil || !slices.Equal(nodes, want[i]) {
				t.Errorf("of %q, %q are profiled, %v; want %q", text, nodes, err, want[i])
			}
		}
		if _, err := profiledNodes(r, []string{"cn7"}); err == nil {
			t.Error("a host that does not exist is profiled")
		}
	}
}
