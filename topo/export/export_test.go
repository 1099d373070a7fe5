package export

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	"go.uber.org/goleak"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/switchd"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// reading is of a rack with a host that has everything and one that has crashed.
func reading() *live.Reading {
	some := json.RawMessage("{}")
	var p switchd.PortCounters
	p.Host, p.RxPackets, p.RxBytes, p.SentPackets, p.SentBytes, p.RxRing = "cn0", 1, 2, 3, 4, 5
	p.Drops = map[pipeline.Reason]uint64{"fault": 6}
	g := &live.Reading{
		At: time.Unix(1, 0), Rack: &rackfile.Rack{Name: "r"},
		Status: rack.Status{
			Name: "r", State: rack.StateCrashed,
			Switch: rack.NodeStatus{Name: "switch", Role: "switch", State: rack.StateUp, Daemon: some, Program: "swordbox"},
			Hosts: []rack.NodeStatus{
				{Name: "cn0", Role: "compute", State: rack.StateUp, Link: rack.LinkUp, Daemon: some},
				{Name: "ms0", Role: "memory", State: rack.StateCrashed, Link: rack.LinkNoCarrier},
			},
			Guests: []rack.GuestStatus{{Link: rack.LinkUp}},
			Trunks: []rack.TrunkStatus{{Name: "leaf0-leaf1", Link: rack.LinkUp}, {Name: "leaf0-leaf2", Link: rack.LinkNoCarrier}},
		},
		Hosts: []hostd.Status{{
			NIC:     hostd.NICStatus{State: hostd.StateUp},
			QPs:     []hostd.QPStatus{{Type: "RC", State: "RTS"}, {Type: "RC", State: "RTS"}, {Type: "UD", State: "ERR"}},
			Clients: &hostd.ClientsStatus{Count: 7, Rate: 8, P99: 9000},
			Stores:  []store.Status{{Store: "tiny", Values: []uint64{10, 11}}},
		}, {}},
		Switch:   switchd.Status{Uptime: 90 * time.Second, Partition: [][]string{{"cn0"}, {"ms0"}}},
		Counters: switchd.Counters{Switch: pipeline.Counters{Rewritten: 12}, Ports: []switchd.PortCounters{p}, Lost: map[pipeline.Reason]uint64{"queue": 13}},
		Trunks: []live.TrunkEnd{{Trunk: "leaf0-leaf1", Switch: "leaf1", Stats: trunk.Stats{
			MTU: 1500, Lost: 7, Refused: trunk.Refused{BadTag: 3}, RoundTrip: time.Millisecond, Shortest: time.Microsecond, Ahead: -2 * time.Second,
		}}},
		Faults: []fault.Status{{Rule: fault.Rule{ID: "f1", Link: "cn0", Kind: fault.Loss}, State: fault.Active, Hits: 5, HitsUp: 2, HitsDown: 3}},
		Tables: []handler.Table{{Name: "macs", Used: 1, Max: 2}},
		Groups: []handler.Group{{Name: "hardened", Counters: []handler.Counter{{Name: "moved", Value: 14}}}},
	}
	return g
}

// scrape returns the text of a collector that reads g, or no rack if g is nil.
func scrape(t *testing.T, g *live.Reading, samples []metrics.Sample) string {
	t.Helper()
	t.Cleanup(store.Register(store.Store{
		Name: "tiny", Title: "Tiny", Node: func(store.Host) store.Node { return nil }, Columns: []string{"GETS"},
	}))
	c := New(Config{
		Version: "v1", Racks: func() []string { return []string{"r", "r"} },
		Read: func(context.Context, string) (*live.Reading, error) {
			if g == nil {
				return nil, errors.New("no such rack")
			}
			return g, nil
		},
		Counters: func(_ context.Context, _ rackfile.Paths, host string) (hostd.Counters, error) {
			if host != "cn0" {
				t.Errorf("the crashed host %s was asked for its counters", host)
			}
			return hostd.Counters{Samples: samples}, nil
		},
	})
	w := httptest.NewRecorder()
	c.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if w.Code != http.StatusOK {
		t.Fatalf("status %d: %s", w.Code, w.Body)
	}
	return w.Body.String()
}

func TestScrape(t *testing.T) {
	text := scrape(t, reading(), []metrics.Sample{{Name: "sent_pkts", Value: 20}, {Name: "of_another_version", Value: 1}})
	for _, want := range []string{
		`rdmalab_build_info{version="v1"} 1`,
		`rdmalab_rack_up{rack="r"} 0`,
		`rdmalab_rack_slow_motion_factor{rack="r"} 1`,
		`rdmalab_node_up{node="cn0",rack="r",role="compute"} 1`,
		`rdmalab_node_up{node="ms0",rack="r",role="memory"} 0`,
		`rdmalab_node_state{node="ms0",rack="r",state="crashed"} 1`,
		`rdmalab_link_up{host="ms0",rack="r"} 0`,
		`rdmalab_nic_up{host="cn0",rack="r"} 1`,
		`rdmalab_nic_queue_pairs{host="cn0",rack="r",state="RTS",type="RC"} 2`,
		`rdmalab_nic_queue_pairs{host="cn0",rack="r",state="ERR",type="UD"} 1`,
		`rdmalab_nic_sent_packets_total{host="cn0",rack="r"} 20`,
		`rdmalab_store_clients{host="cn0",rack="r"} 7`,
		`rdmalab_store_operations_per_second{host="cn0",rack="r"} 8`,
		`rdmalab_store_operation_p99_seconds{host="cn0",rack="r"} 0.009`,
		`rdmalab_store_events_total{counter="GETS",host="cn0",rack="r",store="tiny"} 10`,
		`rdmalab_switch_uptime_seconds{rack="r"} 90`,
		`rdmalab_switch_partition_groups{rack="r"} 2`,
		`rdmalab_switch_rewritten_total{rack="r"} 12`,
		`rdmalab_switch_port_rx_packets_total{host="cn0",rack="r"} 1`,
		`rdmalab_switch_port_rx_bytes_total{host="cn0",rack="r"} 2`,
		`rdmalab_switch_port_tx_packets_total{host="cn0",rack="r"} 3`,
		`rdmalab_switch_port_tx_bytes_total{host="cn0",rack="r"} 4`,
		`rdmalab_switch_port_dropped_packets_total{host="cn0",rack="r",reason="rx-ring"} 5`,
		`rdmalab_switch_port_dropped_packets_total{host="cn0",rack="r",reason="fault"} 6`,
		`rdmalab_switch_dropped_packets_total{rack="r",reason="queue"} 13`,
		`rdmalab_switch_table_entries{rack="r",table="macs"} 1`,
		`rdmalab_switch_table_capacity{rack="r",table="macs"} 2`,
		`rdmalab_switch_program_info{program="swordbox",rack="r"} 1`,
		`rdmalab_switch_program_events_total{counter="moved",group="hardened",rack="r"} 14`,
		`rdmalab_fault_active{fault="f1",kind="loss",link="cn0",rack="r"} 1`,
		`rdmalab_fault_hits_total{dir="up",fault="f1",kind="loss",link="cn0",rack="r"} 2`,
		`rdmalab_fault_hits_total{dir="down",fault="f1",kind="loss",link="cn0",rack="r"} 3`,
		`rdmalab_trunk_up{rack="r",trunk="leaf0-leaf1"} 1`,
		`rdmalab_trunk_up{rack="r",trunk="leaf0-leaf2"} 0`,
		`rdmalab_trunk_lost_total{rack="r",switch="leaf1",trunk="leaf0-leaf1"} 7`,
		`rdmalab_trunk_refused_bad_tag_total{rack="r",switch="leaf1",trunk="leaf0-leaf1"} 3`,
		`rdmalab_trunk_mtu_bytes{rack="r",switch="leaf1",trunk="leaf0-leaf1"} 1500`,
		`rdmalab_trunk_round_trip_seconds{rack="r",switch="leaf1",trunk="leaf0-leaf1"} 0.001`,
		`rdmalab_trunk_peer_clock_ahead_seconds{rack="r",switch="leaf1",trunk="leaf0-leaf1"} -2`,
		`# TYPE rdmalab_nic_sent_packets_total counter`,
		`# TYPE rdmalab_nic_queue_pairs gauge`,
		`# HELP rdmalab_nic_sent_packets_total RoCEv2 packets sent`,
	} {
		if !strings.Contains(text, want+"\n") {
			t.Errorf("the scrape lacks %s", want)
		}
	}
	for _, not := range []string{"another_version", `nic_up{host="ms0"`, `counter="11"`} {
		if strings.Contains(text, not) {
			t.Errorf("the scrape has %s", not)
		}
	}
	problems, err := promlint.New(strings.NewReader(text)).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
}

func TestMissingRackIsNotUp(t *testing.T) {
	text := scrape(t, nil, nil)
	if !strings.Contains(text, "rdmalab_rack_up{rack=\"r\"} 0\n") || strings.Contains(text, "rdmalab_node") {
		t.Errorf("%s", text)
	}
}

// A daemon that answers nonsense makes no scrape fail, and no scrape without bound.
func TestHostileDaemon(t *testing.T) {
	g := reading()
	for range 2 {
		g.Faults = append(g.Faults, fault.Status{Rule: fault.Rule{ID: "\xff\x00\"\n", Link: strings.Repeat("é", 10000), Kind: "x"}})
	}
	for i := range 20000 {
		g.Tables = append(g.Tables, handler.Table{Name: fmt.Sprint(i)})
	}
	text := scrape(t, g, []metrics.Sample{{Name: "sent_pkts", Value: 1}, {Name: "sent_pkts", Value: 2}})
	if n := strings.Count(text, "rdmalab_switch_table_entries{"); n != maxSeries {
		t.Errorf("%d series of one family, want %d", n, maxSeries)
	}
	if strings.Count(text, "rdmalab_nic_sent_packets_total{") != 1 || !strings.Contains(text, `rdmalab_fault_active{fault="�`) {
		t.Error("what a daemon says twice, or in no UTF-8, is missing or doubled")
	}
	if n := len(text); n > 2<<20 {
		t.Errorf("a scrape of %d bytes", n)
	}
}

// names finds metrics in an expression.
var names = regexp.MustCompile(`rdmalab_[a-z0-9_]+`)

// Each metric that the examples name exists, and is a counter where a rate is made of it.
func TestExamplesNameMetricsThatExist(t *testing.T) {
	kinds := make(map[string]string)
	for _, f := range Families() {
		if kinds[f.Name] != "" {
			t.Errorf("%s is there twice", f.Name)
		}
		kinds[f.Name] = f.Type
	}
	for _, expr := range slices.Concat(alertExprs(t), dashboardExprs(t)) {
		found := names.FindAllStringIndex(expr, -1)
		if len(found) == 0 {
			t.Errorf("%q names no metric", expr)
		}
		for _, at := range found {
			name, before := expr[at[0]:at[1]], expr[:at[0]]
			rated := strings.HasSuffix(before, "rate(") || strings.HasSuffix(before, "increase(")
			switch kind := kinds[name]; {
			case kind == "":
				t.Errorf("%q: there is no metric %s", expr, name)
			case rated != (kind == "counter"):
				t.Errorf("%q: %s is a %s", expr, name, kind)
			}
		}
	}
}

func example(t *testing.T, file string) []byte {
	t.Helper()
	b, err := os.ReadFile("../../packaging/metrics/" + file)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func alertExprs(t *testing.T) (list []string) {
	var file struct {
		Groups []struct {
			Name  string
			Rules []struct {
				Alert, Expr, For    string
				Labels, Annotations map[string]string
			}
		}
	}
	if err := yaml.UnmarshalWithOptions(example(t, "alerts.yaml"), &file, yaml.DisallowUnknownField()); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Annotations["summary"] == "" || r.Labels["severity"] == "" {
				t.Errorf("the alert %+v lacks something", r)
			}
			list = append(list, r.Expr)
		}
	}
	return list
}

func dashboardExprs(t *testing.T) (list []string) {
	var file struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
		Templating struct{ List []struct{ Definition string } }
	}
	if err := json.Unmarshal(example(t, "dashboard.json"), &file); err != nil {
		t.Fatal(err)
	}
	for _, p := range file.Panels {
		for _, target := range p.Targets {
			list = append(list, target.Expr)
		}
	}
	for _, v := range file.Templating.List {
		if v.Definition != "" {
			list = append(list, v.Definition)
		}
	}
	return list
}

// Scrapes beyond a number get an error at once instead of a place in a queue.
func TestScrapesAreBounded(t *testing.T) {
	hold, entered := make(chan struct{}), make(chan struct{}, 1)
	c := New(Config{Racks: func() []string { return []string{"r"} }, Read: func(context.Context, string) (*live.Reading, error) {
		entered <- struct{}{}
		<-hold
		return nil, errors.New("gone")
	}})
	srv := httptest.NewServer(c.Handler())
	defer srv.Close()
	codes := make(chan int)
	get := func() {
		resp, err := http.Get(srv.URL)
		if err != nil {
			t.Error(err)
			codes <- 0
			return
		}
		_, _ = io.Copy(io.Discard, resp.Body)
		_ = resp.Body.Close()
		codes <- resp.StatusCode
	}
	for range maxScrapes + 3 {
		go get()
	}
	<-entered
	for range 3 {
		if code := <-codes; code != http.StatusServiceUnavailable {
			t.Errorf("status %d of a scrape that is too much, want 503", code)
		}
	}
	close(hold)
	for range maxScrapes {
		if code := <-codes; code != http.StatusOK {
			t.Errorf("status %d of a scrape, want 200", code)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}
