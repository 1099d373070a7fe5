package cli

import (
	"os"
	"slices"
	"testing"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
)

// platformOf is a rack of a file that is not up.
func platformOf(t *testing.T, file string) *rackPlatform {
	t.Helper()
	data, err := os.ReadFile("../" + file)
	if err != nil {
		t.Fatal(err)
	}
	rack, err := parseRack(file, data)
	if err != nil {
		t.Fatal(err)
	}
	hosts, err := rack.NamesByRole(rackfile.Compute)
	if err != nil {
		t.Fatal(err)
	}
	return &rackPlatform{rack: rack, hosts: hosts}
}

// A host that only receives is a memory server; one that READs is a compute host also if others fill its port; and one with
// a priority of its own is the host of the file that has one.
func TestCastOfScenes(t *testing.T) {
	p := platformOf(t, experiment.SharedRack)
	for _, c := range []struct {
		flows []experiment.SceneFlow
		hosts int
		want  []string
	}{
		{[]experiment.SceneFlow{{From: 1, To: 0, Read: true}, {From: 2, To: 0, Read: true}, {From: 3, To: 1}}, 4, []string{"ms0", "cn0", "cn1", "cn2"}},
		{[]experiment.SceneFlow{{From: 1, To: 0, Atomic: true, Apart: true}, {From: 2, To: 0}}, 3, []string{"ms0", "apart", "cn0"}},
		{[]experiment.SceneFlow{{From: 1, To: 0, Atomic: true}}, 3, []string{"ms0", "cn0", "cn1"}},
	} {
		r := &rackScene{on: p, scene: experiment.Scene{Hosts: c.hosts, Flows: c.flows}}
		if err := r.cast(); err != nil || !slices.Equal(r.hosts, c.want) {
			t.Errorf("%+v: %v, %v; want %v", c.flows, r.hosts, err, c.want)
		}
	}
	two := &rackScene{on: p, scene: experiment.Scene{Hosts: 3, Flows: []experiment.SceneFlow{{From: 1, To: 0, Apart: true}, {From: 2, To: 0, Apart: true}}}}
	if err := two.cast(); err == nil {
		t.Errorf("two hosts with a priority of their own are %v", two.hosts)
	}
}

// Bulk senders are the last compute hosts, two for each memory server, and clients the others; a rack without enough hosts is
// refused. The share is of one port.
func TestCastOfBulkSenders(t *testing.T) {
	b := &besideBulk{on: platformOf(t, experiment.StoresRack), load: experiment.Bulk{Control: experiment.BulkByFile}}
	if err := b.cast(); err != nil || b.clients != 4 || !slices.Equal(b.from, []string{"cn4", "cn5", "cn6", "cn7"}) || !slices.Equal(b.to, []string{"ms0", "ms1", "ms0", "ms1"}) {
		t.Errorf("%d hosts of clients, %v send to %v, %v", b.clients, b.from, b.to, err)
	}
	if share := b.share(2_000_000, 10_000_000_000, time.Millisecond); share != 0.8 { // 2 MB to two ports of 1.25 MB a ms
		t.Errorf("share %v", share)
	}
	idle := &besideBulk{on: b.on, load: experiment.Bulk{Control: experiment.BulkIdle}}
	if err := idle.cast(); err != nil || idle.clients != 4 || idle.from != nil || idle.share(1, 1, time.Second) != 0 {
		t.Errorf("idle: %d hosts of clients, %v send, %v", idle.clients, idle.from, err)
	}
	small := &besideBulk{on: platformOf(t, "topo/racks/default.yaml")}
	if err := small.cast(); err == nil {
		t.Errorf("a small rack has %d hosts of clients", small.clients)
	}
}
