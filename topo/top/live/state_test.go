package live

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/swordbox/cloversteer"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/rackapi"
	"github.com/rdmalab/rdmalab/topo/switchd"
	"github.com/rdmalab/rdmalab/topo/top"
)

// fullReading is a reading in which every part of a sample has something.
func fullReading() *Reading {
	g := &Reading{
		At: time.UnixMilli(1_700_000_000_123), Rack: &rackfile.Rack{Name: "r"},
		Status: rack.Status{
			Name: "r", State: rack.StateCut,
			Switch: rack.NodeStatus{Name: "switch", Role: "switch", State: rack.StateUp, Program: "swordbox"},
			Hosts:  []rack.NodeStatus{{Name: "cn0", Role: "compute", State: rack.StateUp, Link: rack.LinkUp}, {Name: "ms0", Role: "memory", State: rack.StateCut, Link: rack.LinkDown}},
		},
		Hosts:  []hostd.Status{{NIC: hostd.NICStatus{RetransPkts: 7}, QPs: []hostd.QPStatus{{QPN: 7, Type: "RC", State: "RTS", Peer: "ms0", PeerQPN: 8, SendPSN: 1, RecvPSN: 2, SendQueued: 3, RecvQueued: 4, RetransPkts: 5}}}, {}},
		Faults: []fault.Status{{State: fault.Active, Rule: fault.Rule{ID: "f1", Link: "cn0", Kind: fault.Loss, Probability: 0.1}}},
		Tables: []handler.Table{{Name: "t", Used: 1, Max: 2}},
		Keys:   []cloversteer.Key{{Key: 1 << 60, Reads: 1, Appends: 2, Steered: 3, Rate: 4.5}},
	}
	g.Switch = switchd.Status{Uptime: 9 * time.Second, Partition: [][]string{{"cn0"}, {"ms0"}}, Captures: 2}
	return g
}

// The state of a rack goes by JSON, and what the live view shows of it is what it shows of the reading itself.
func TestStateHasAllThatTheViewShows(t *testing.T) {
	g := fullReading()
	want := g.Sample()
	want.Switch.Words = []top.Word{{Server: "ms0", VA: 1 << 63, State: "held", Value: 1<<64 - 1, Pending: 1}}
	want.Switch.Shared = []top.Shared{{Name: "ms0/0", State: "up", Open: 1, Most: 2, Queued: 3, Tries: 4, NextPSN: 5}}
	want.Nodes[0].Columns = []top.Counter{{Name: "c", Value: 1}}
	state := g.stateOf(&want, nil)
	text, err := json.Marshal(state)
	if err != nil {
		t.Fatal(err)
	}
	var back rackapi.Rack
	if err := json.Unmarshal(text, &back); err != nil {
		t.Fatal(err)
	}
	if got := SampleOf(&back); cmp.Diff(want, got) != "" {
		t.Errorf("-reading +state\n%s", cmp.Diff(want, got))
	}
	if len(want.QPs) == 0 || len(want.Faults) == 0 || len(want.Switch.Keys) == 0 || len(want.Switch.Counters) == 0 || want.Uptime == 0 {
		t.Errorf("the reading lacks parts: %+v", want)
	}
	if gone := SampleOf(&rackapi.Rack{Name: "r", Gone: "it was taken down"}); gone.Gone != "it was taken down" {
		t.Errorf("%+v", gone)
	}
}
