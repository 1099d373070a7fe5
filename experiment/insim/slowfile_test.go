package insim

import (
	"os"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/costs"
	"github.com/rdmalab/rdmalab/softrnic/cost"
)

// slowFile reads a rack file of topo/racks for a rack in slow motion, with the cost model that it names.
func slowFile(t *testing.T, name string) (*rackfile.Rack, *cost.Model) {
	t.Helper()
	data, err := os.ReadFile("../../topo/racks/" + name)
	if err != nil {
		t.Fatal(err)
	}
	spec, err := rackfile.Parse(data)
	if err != nil {
		t.Fatal(err)
	}
	model, err := costs.Builtin(spec.Cost)
	if err != nil {
		t.Fatal(err)
	}
	return spec, model
}
