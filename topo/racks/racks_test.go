package racks

import (
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/topo/spec"
)

func TestDefaultRack(t *testing.T) {
	r, err := spec.ParseFile(DefaultName, Default())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"md0", "ms0", "ms1", "cn0", "cn1", "cn2", "cn3"}
	if r.Name != "default" || !slices.Equal(r.HostNames(), want) {
		t.Errorf("rack %s with hosts %v, want default with %v", r.Name, r.HostNames(), want)
	}
	if n := len(r.ByRole(spec.Memory)); n != 2 {
		t.Errorf("%d memory hosts, want 2", n)
	}
}
