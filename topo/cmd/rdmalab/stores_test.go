package main

import (
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/clover"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/spec"
)

// Both stores take the memory of the same servers: each refuses while the other one is up, and says where, and what to do.
func TestStoresDoNotTakeEachOthersMemory(t *testing.T) {
	rack := &spec.Rack{Name: "r", Hosts: []spec.Host{
		{Name: "cn0", Role: spec.Compute}, {Name: "cn1", Role: spec.Compute}, {Name: "md0", Role: spec.Metadata}, {Name: "ms0", Role: spec.Memory},
	}}
	hosts := map[string]hostd.Status{}
	status := func(host string) hostd.Status { return hosts[host] }
	refused := func(err error, want ...string) {
		t.Helper()
		for _, w := range want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("%v; want %q", err, w)
			}
		}
	}
	free := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	free(noClover(rack, status)) // nobody answers
	free(noTree(rack, status))
	hosts["md0"] = hostd.Status{Services: []string{"perf", clover.Service}}
	refused(noClover(rack, status), "md0", "`rdmalab clover stop`")
	free(noTree(rack, status))
	hosts["md0"] = hostd.Status{Services: []string{"perf"}}
	hosts["cn1"] = hostd.Status{Tree: true}
	free(noClover(rack, status))
	refused(noTree(rack, status), "cn1", "`rdmalab sherman stop`")
}
