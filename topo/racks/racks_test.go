package racks

import (
	"net/netip"
	"os"
	"slices"
	"testing"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
)

func TestDefaultRack(t *testing.T) {
	r, err := rackfile.ParseFile(DefaultName, Default())
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"md0", "ms0", "ms1", "cn0", "cn1", "cn2", "cn3"}
	if r.Name != "default" || !slices.Equal(r.HostNames(), want) {
		t.Errorf("rack %s with hosts %v, want default with %v", r.Name, r.HostNames(), want)
	}
	if n := len(r.ByRole(rackfile.Memory)); n != 2 {
		t.Errorf("%d memory hosts, want 2", n)
	}
}

// The rack file beside the default one is valid.
func TestSwordBoxRack(t *testing.T) {
	data, err := os.ReadFile("swordbox.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rackfile.ParseFile("swordbox.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	servers := make(map[netip.Addr]bool)
	for i := range r.Switch.Rules {
		servers[r.Switch.Rules[i].Server] = true
	}
	if _, err := rules.NewSet(r.Switch.Rules); err != nil || r.Switch.Program != rackfile.ProgramSwordBox || len(servers) != 2 {
		t.Errorf("program %s, rules %v, %v", r.Switch.Program, r.Switch.Rules, err)
	}
}

// The rack file for both stores is the default rack with another switch.
func TestStoresRack(t *testing.T) {
	data, err := os.ReadFile("stores.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rackfile.ParseFile("stores.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	usual, err := rackfile.ParseFile(DefaultName, Default())
	if err != nil {
		t.Fatal(err)
	}
	if r.Switch.Program != rackfile.ProgramSwordBox || len(r.Switch.Rules) != 0 || !slices.Equal(r.HostNames(), usual.HostNames()) {
		t.Errorf("program %s, rules %v, hosts %v", r.Switch.Program, r.Switch.Rules, r.HostNames())
	}
}

// The rack file of the packet buffer lends 1 GB, and a rule with that much is valid there.
func TestBufferRack(t *testing.T) {
	data, err := os.ReadFile("buffer.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rackfile.ParseFile("buffer.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	total := 0
	for _, h := range r.ByRole(rackfile.Memory) {
		total += int(h.Memory)
	}
	if total < 690_000*1552 || r.Switch.Program != rackfile.ProgramSwordBox || len(r.Switch.Rules) != 0 || len(r.ByRole(rackfile.Compute)) != 5 {
		t.Errorf("program %s, rules %v, %d bytes, hosts %v", r.Switch.Program, r.Switch.Rules, total, r.HostNames())
	}
}

// The rack file for the figures of 1RMA in slow motion has as many hosts as the paper's testbed, and all
// lend memory.
func TestSlowRack(t *testing.T) {
	data, err := os.ReadFile("onerma-slow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rackfile.ParseFile("onerma-slow.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	if o := r.OneRMA; o == nil || o.Dispatch != 2*o.RTT || o.Timeout != 4*o.RTT || len(r.ByRole(rackfile.Compute)) != 40 {
		t.Errorf("1RMA %+v, hosts %v", o, r.HostNames())
	}
	for i := range r.Hosts {
		if r.Hosts[i].Memory == 0 {
			t.Errorf("%s lends no memory", r.Hosts[i].Name)
		}
	}
}

// The rack file of DCQCN in slow motion has 16 senders, and the queue of the DCQCN paper.
func TestDCQCNRack(t *testing.T) {
	data, err := os.ReadFile("dcqcn-slow.yaml")
	if err != nil {
		t.Fatal(err)
	}
	r, err := rackfile.ParseFile("dcqcn-slow.yaml", data)
	if err != nil {
		t.Fatal(err)
	}
	q := r.Switch.Queues
	if r.Slow == 0 || q == nil || q.Rate != 40_000_000_000 || q.Classes[0].ECN.KMax != 200_000 || len(r.ByRole(rackfile.Compute)) != 16 {
		t.Errorf("slow %d, queues %+v, hosts %v", r.Slow, q, r.HostNames())
	}
	for i := range r.Hosts {
		if h := &r.Hosts[i]; h.Congestion == nil || h.Congestion.MaxRate != q.Rate {
			t.Errorf("%s has congestion control %+v", h.Name, h.Congestion)
		}
	}
}
