package uverbs

import (
	"fmt"
	"path"
	"strings"
	"testing"

	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Each place of the GID table has a type, also the free one: without it libibverbs takes the table
// for broken.
func TestTreeTypes(t *testing.T) {
	tree, places := Tree(verbs.DeviceAttr{GIDs: make([]verbs.GID, 3)}, Place{Device: "rxe0", Ifname: "eth0"}), 0
	for name := range tree {
		dir, n, ok := strings.Cut(name, "/gids/")
		if !ok {
			continue
		}
		if places++; tree[dir+"/gid_attrs/types/"+n] != "RoCE v2" {
			t.Errorf("%s has no type", name)
		}
	}
	if places != 4 {
		t.Errorf("%d places, want 4", places)
	}
}

// ibv_query_pkey reads the P_Keys of the port here.
func TestTreeHasPKeys(t *testing.T) {
	tree := Tree(verbs.DeviceAttr{PKeys: []uint16{0xffff, 1}}, Place{Device: "rxe0", Ifname: "eth0"})
	for i, want := range []string{"0xffff", "0x0001", ""} {
		if got := tree[fmt.Sprintf("devices/virtual/infiniband/rxe0/ports/1/pkeys/%d", i)]; got != want {
			t.Errorf("P_Key %d is %q, want %q", i, got, want)
		}
	}
}

// The NICs of a host share a tree: each has its own device, and the first one the files of all.
func TestTreeOfSeveralNICs(t *testing.T) {
	first, node := Place{Device: "rxe0", Ifname: "rack0"}, 1
	second := Place{Device: "rxe_fast", Nth: 1, Ifname: "rack1", NUMA: &node}
	a, b := Tree(verbs.DeviceAttr{}, first), Tree(verbs.DeviceAttr{}, second)
	for name := range b {
		if _, ok := a[name]; ok || first.Own(name) || !second.Own(name) {
			t.Errorf("%s belongs to both, or to none", name)
		}
	}
	for name := range a {
		if second.Own(name) || !first.Own(name) {
			t.Errorf("%s is not of the first NIC alone", name)
		}
	}
	for name, want := range map[string]string{
		"devices/virtual/infiniband_verbs/uverbs1/ibdev": "rxe_fast", "devices/virtual/infiniband/rxe_fast/device/numa_node": "1", "devices/virtual/infiniband/rxe_fast/parent": "rack1", "class/misc/rdma_cm/abi_version": "",
	} {
		if b[name] != want {
			t.Errorf("%s is %q, want %q", name, b[name], want)
		}
	}
	if a["class/misc/rdma_cm/abi_version"] == "" || a["devices/virtual/infiniband/rxe0/device/numa_node"] != "" {
		t.Error("the first NIC lacks the common files, or tells a NUMA node")
	}
}

// Each link leads to a folder of the NIC's files, or to that of its class, and belongs to that NIC alone.
func TestLinks(t *testing.T) {
	first, second := Place{Device: "rxe0", Ifname: "rack0"}, Place{Device: "rxe_fast", Nth: 1, Ifname: "rack1"}
	for _, at := range []struct{ own, other Place }{{first, second}, {second, first}} {
		files := Tree(verbs.DeviceAttr{}, at.own)
		for link, target := range Links(at.own) {
			if !at.own.Own(link) || at.other.Own(link) {
				t.Errorf("%s belongs to both NICs, or to none", link)
			}
			to, found := path.Join(path.Dir(link), target)+"/", strings.HasSuffix(link, "/subsystem")
			for file := range files {
				found = found || strings.HasPrefix(file, to)
			}
			if to == path.Dir(link)+"/" || !found && at.own.Nth == 0 {
				t.Errorf("%s -> %s leads to %s, where nothing is", link, target, to)
			}
		}
	}
}

// The files show what the NIC has counted, data in words of 4 bytes, and each counter of `rdma statistic`.
func TestCounterFiles(t *testing.T) {
	at := Place{Device: "rxe0", Ifname: "rack0"}
	c := metrics.NIC{SentPkts: 7, RcvdBytes: 4096, RxIcrcErr: 1, RxMalformed: 2, OutOfSequence: 5}
	files := CounterFiles(&c, at)
	const port = "devices/virtual/infiniband/rxe0/ports/1/"
	for name, want := range map[string]string{
		"counters/port_xmit_packets": "7", "counters/port_rcv_data": "1024", "counters/port_rcv_errors": "3", "counters/symbol_error": "0",
		"hw_counters/out_of_seq_request": "5", "hw_counters/sent_pkts": "7", "hw_counters/lifespan": "1000",
	} {
		if files[port+name] != want {
			t.Errorf("%s is %q, want %s", name, files[port+name], want)
		}
	}
	for file := range files {
		if !at.Own(file) {
			t.Errorf("%s is of no NIC", file)
		}
	}
}
