package live

import (
	"encoding/json"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/apps/swordbox"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
	"github.com/rdmalab/rdmalab/topo/top"
)

func raw(t *testing.T, v any) json.RawMessage {
	t.Helper()
	b, err := json.Marshal(v)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestAnswersBecomeASample(t *testing.T) {
	ms0 := netip.MustParseAddr("10.77.0.3")
	described := &rackfile.Rack{Hosts: []rackfile.Host{{Name: "ms0", IPv4: ms0}}}
	var status rack.Status
	status.Hosts = []rack.NodeStatus{{Name: "cn0", Role: "compute", State: "up", Link: "up", Daemon: raw(t, hostd.Status{
		NIC:  hostd.NICStatus{RetransPkts: 9},
		Tear: &hostd.Tear{Probability: 0.5},
		QPs: []hostd.QPStatus{
			{QPN: 1, Type: "RC", State: "RTS", Peer: "::ffff:10.77.0.3", PeerQPN: 2, SendPSN: 3, RecvPSN: 4, SendQueued: 5, RecvQueued: 6, RetransPkts: 7},
			{QPN: 8, Type: "UD", State: "RTS", Peer: "fd00::9"},
		},
	})}, {Name: "cn1", State: "crashed", Link: "no-carrier"}}

	var ports switchd.PortCounters
	ports.Host, ports.RxRing, ports.Drops = "cn0", 3, map[pipeline.Reason]uint64{"fault": 4, "queue": 5}
	g := Reading{
		Rack: described, Status: status,
		Counters: switchd.Counters{Switch: pipeline.Counters{Rewritten: 11}, Ports: []switchd.PortCounters{ports}},
		Faults: []fault.Status{
			{Rule: fault.Rule{ID: "f1", Link: "cn0", Kind: fault.Loss, Probability: 0.1}, State: fault.Active, Hits: 12},
			{Rule: fault.Rule{ID: "f2", Link: "cn0", Kind: fault.Blackhole}, State: fault.Expired},
		},
		Tables: []handler.Table{{Name: "macs", Used: 1, Max: 2}},
		Groups: []handler.Group{{Name: "hardened", Counters: []handler.Counter{{Name: "moved", Value: 13}, {Name: "held"}}}},
		Report: swordbox.Report{
			Handlers: []handler.Info{{
				Shared: []handler.Shared{
					{Server: ms0, Shard: 0, OwnQPN: 20, NextPSN: 21, Ring: 128, Outstanding: 22, Queued: 23, Retries: 24},
					{Server: ms0, Shard: 5, State: "open", Ring: 16},
				},
				Words: []handler.Word{{Server: ms0, VA: 30, State: "Known", Value: 31, Pending: 32}},
			}},
			Dialed: []switchconn.Info{
				{Key: switchconn.Key{Server: ms0, Shard: 0}, State: switchconn.Up, Shared: &switchconn.Shared{OwnQPN: 20}},
				{Key: switchconn.Key{Server: ms0, Shard: 1}, State: switchconn.Waiting, Attempts: 4},
			},
		},
	}
	g.Status.State, g.Status.Name = "crashed", "r"
	g.Status.Switch = rack.NodeStatus{Name: rackfile.SwitchName, State: "up", Program: "swordbox", Daemon: raw(t, switchd.Status{Uptime: time.Minute, Captures: 2, Partition: [][]string{{"cn0"}}, Ports: []switchd.PortStatus{
		{Host: "cn0", RxPacketRate: 1, RxBitRate: 2, TxPacketRate: 3, TxBitRate: 4, Faults: []string{"f1"}},
	}})}
	g.decode()
	s := g.Sample()

	want := top.Sample{
		Rack: "r", State: "crashed", Program: "swordbox",
		Uptime: time.Minute, Captures: 2, Partition: [][]string{{"cn0"}},
		Nodes: []top.Node{
			{Name: "cn0", Role: "compute", State: "up", Link: "up", UpPackets: 1, UpBits: 2, DownPackets: 3, DownBits: 4, Dropped: 12, Retrans: 9, Faults: []string{"f1"}},
			{Name: "cn1", State: "crashed", Link: "no-carrier"},
			{Name: "switch", Role: "switch", State: "up"},
		},
		QPs: []top.QP{
			{Host: "cn0", QPN: 1, Type: "RC", State: "RTS", Peer: "ms0", PeerQPN: 2, SendPSN: 3, RecvPSN: 4, SendQueued: 5, RecvQueued: 6, Retrans: 7},
			{Host: "cn0", QPN: 8, Type: "UD", State: "RTS", Peer: "fd00::9"},
		},
		Faults: []top.Fault{
			{ID: "tear-cn0", State: "active", Text: fault.Rule{Link: "cn0", Kind: fault.Tear, Probability: 0.5}.String()},
			{ID: "f1", State: "active", Text: "loss 10% --link cn0", Hits: 12},
		},
		Switch: top.Switch{
			Counters: []top.Counter{{Name: "rewritten", Value: 11}, {Name: "emitted"}, {Name: "held"}, {Name: "consumed"}, {Name: "flooded"}, {Name: "mac_moves"}, {Name: "hardened moved", Value: 13}},
			Tables:   []top.Table{{Name: "macs", Used: 1, Max: 2}},
			Shared: []top.Shared{
				{Name: "ms0/0", State: "up", Open: 22, Most: 128, Queued: 23, Tries: 24, NextPSN: 21},
				{Name: "ms0/1", State: "waiting", Tries: 4},
				{Name: "ms0/5", State: "open", Most: 16},
			},
			Words: []top.Word{{Server: "ms0", VA: 30, State: "Known", Value: 31, Pending: 32}},
		},
	}
	if diff := cmp.Diff(want, s); diff != "" {
		t.Errorf("sample (-want +got):\n%s", diff)
	}
}
