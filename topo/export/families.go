package export

import (
	"reflect"
	"slices"
	"strings"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmalab/rdmalab/softrnic/trunk"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// prefix begins all names.
const prefix = "rdmalab_"

// family is a metric with its labels. Counters have a name that ends with _total.
type family struct {
	name   string
	help   string
	labels []string
}

// counter reports whether the family is a counter, and not a gauge.
func (f *family) counter() bool { return strings.HasSuffix(f.name, "_total") }

// desc returns the description of the family, which is made when it is used first.
func (f *family) desc() *prometheus.Desc {
	d, ok := descs.Load(f.name)
	if !ok {
		d, _ = descs.LoadOrStore(f.name, prometheus.NewDesc(f.name, f.help, f.labels, nil))
	}
	return d.(*prometheus.Desc)
}

// descs has the descriptions by name.
var descs sync.Map

func one(name, help string, labels ...string) family { return family{prefix + name, help, labels} }

// Families of racks, nodes and links.
var (
	buildInfo = one("build_info", "1, with the version of the program that was scraped", "version")
	rackUp    = one("rack_up", "1 if every node of the rack is up, otherwise 0; also 0 if there is no such rack", "rack")
	rackSlow  = one("rack_slow_motion_factor", "by how much the rack is slower than real time; 1 if it is not in slow motion", "rack")
	readTime  = one("rack_read_duration_seconds", "how long it took to ask all daemons of the rack for this scrape", "rack")
	nodeUp    = one("node_up", "1 if the node is up, otherwise 0", "rack", "node", "role")
	nodeState = one("node_state", "1 for the present state of the node, as status prints it", "rack", "node", "state")
	linkUp    = one("link_up", "1 if the link of the host is up, otherwise 0", "rack", "host")
	guestUp   = one("guest_link_up", "1 if the link of the guest is up, otherwise 0", "rack", "guest")
	daemonUp  = one("daemon_goroutines", "goroutines of the node's daemon; of a compact rack those of all daemons", "rack", "node")
	daemonMem = one("daemon_live_heap_bytes", "heap of the node's daemon after the last garbage collection; of a compact rack that of all daemons", "rack", "node")
)

// Families of NICs beside their counters.
var (
	nicUp       = one("nic_up", "1 if the NIC of the host works, otherwise 0", "rack", "host")
	nicQPs      = one("nic_queue_pairs", "queue pairs of the host's NIC", "rack", "host", "type", "state")
	nicPrograms = one("nic_programs", "processes that are attached to the host's NIC", "rack", "host")
)

// Families of stores.
var (
	storeClients = one("store_clients", "clients of stores that run on the host", "rack", "host")
	storeRate    = one("store_operations_per_second", "operations of the host's clients that have succeeded in the last full second", "rack", "host")
	storeP99     = one("store_operation_p99_seconds", "99th percentile of the latency of the host's clients in the last full second", "rack", "host")
	storeEvents  = one("store_events_total", "what the host's part of a store counts; counter is the column of top", "rack", "host", "store", "counter")
)

// Families of the switch.
var (
	switchUptime  = one("switch_uptime_seconds", "how long the daemon of the switch has run", "rack")
	portRxPackets = one("switch_port_rx_packets_total", "packets that the switch has received from the host", "rack", "host")
	portRxBytes   = one("switch_port_rx_bytes_total", "bytes of the frames that the switch has received from the host", "rack", "host")
	portRxRoCE    = one("switch_port_rx_roce_packets_total", "well-formed RoCEv2 packets that the switch has received from the host", "rack", "host")
	portMalformed = one("switch_port_rx_roce_malformed_total", "packets to UDP port 4791 from the host that are not valid RoCEv2", "rack", "host")
	portTxPackets = one("switch_port_tx_packets_total", "packets that the switch has sent to the host", "rack", "host")
	portTxBytes   = one("switch_port_tx_bytes_total", "bytes of the frames that the switch has sent to the host", "rack", "host")
	portDrops     = one("switch_port_dropped_packets_total", "packets of the host's link that were dropped at the switch, by reason; fault is a fault rule, rx-ring a full receive ring", "rack", "host", "reason")
	switchDrops   = one("switch_dropped_packets_total", "packets without an ingress port that were dropped at the switch, by reason", "rack", "reason")
	switchParts   = one("switch_partition_groups", "groups of hosts that cannot reach each other; 0 if there is no partition", "rack")
	switchDelayed = one("switch_delayed_frames", "frames that fault rules delay now", "rack")
	switchRuns    = one("switch_captures", "captures that run", "rack")
	switchLost    = one("switch_capture_lost_packets_total", "packets that captures lack because their readers were too slow", "rack")
	switchTable   = one("switch_table_entries", "entries of a table of the switch", "rack", "table")
	switchRoom    = one("switch_table_capacity", "largest number of entries of a table of the switch", "rack", "table")
	programInfo   = one("switch_program_info", "1, with the name of the switch program that runs", "rack", "program")
	programEvents = one("switch_program_events_total", "what the switch program counts, as switch counters prints it", "rack", "group", "counter")
	sharedFlight  = one("switch_connection_requests_in_flight", "requests in flight on a switch's connection, by server and shard", "rack", "connection")
	sharedQueue   = one("switch_connection_requests_queued", "requests that wait for a switch's connection, by server and shard", "rack", "connection")
	faultActive   = one("fault_active", "1 if the fault rule is in force, 0 if it has ended", "rack", "fault", "link", "kind")
	faultHits     = one("fault_hits_total", "frames that the fault rule has hit, by direction", "rack", "fault", "link", "kind", "dir")
)

// Families of trunks; all but the first are of those between machines.
var (
	trunkUp    = one("trunk_up", "1 if the trunk between two switches is up, otherwise 0", "rack", "trunk")
	trunkMTU   = one("trunk_mtu_bytes", "path MTU of the trunk, as its end at this switch knows it", "rack", "trunk", "switch")
	trunkTrip  = one("trunk_round_trip_seconds", "round trip of the trunk's last probe, without the time in which the other switch held it", "rack", "trunk", "switch")
	trunkAhead = one("trunk_peer_clock_ahead_seconds", "how far the clock of the other machine is ahead of that of this switch", "rack", "trunk", "switch")
)

// trunkCounters are the families of the counters of a trunk's end, by the name that they have in package
// trunk.
var trunkCounters = sync.OnceValue(func() map[string]family {
	m := make(map[string]family)
	for _, s := range new(trunk.Stats).Samples() {
		m[s.Name] = one("trunk_"+s.Name+"_total", s.Help, "rack", "trunk", "switch")
	}
	return m
})

// fixed lists the families with a name that is written in this file.
var fixed = []*family{
	&buildInfo, &rackUp, &rackSlow, &readTime, &nodeUp, &nodeState, &linkUp, &guestUp, &daemonUp, &daemonMem, &nicUp, &nicQPs, &nicPrograms,
	&storeClients, &storeRate, &storeP99, &storeEvents, &switchUptime, &portRxPackets, &portRxBytes, &portRxRoCE, &portMalformed,
	&portTxPackets, &portTxBytes, &portDrops, &switchDrops, &switchParts, &switchDelayed, &switchRuns, &switchLost, &switchTable, &switchRoom,
	&programInfo, &programEvents, &sharedFlight, &sharedQueue, &faultActive, &faultHits,
	&trunkUp, &trunkMTU, &trunkTrip, &trunkAhead,
}

// nicCounters are the families of the counters that the command counters shows of a host, by the name
// that it has there. They are made when a Collector is: every process of a rack is this program.
var nicCounters = sync.OnceValue(func() map[string]family {
	m := make(map[string]family)
	for _, s := range hostd.CounterHelp() {
		m[s.Name] = one("nic_"+spelled(s.Name)+"_total", s.Help, "rack", "host")
	}
	return m
})

// spelled writes out the words of a counter's name that are abbreviated.
func spelled(name string) string {
	words := strings.Split(name, "_")
	for i, w := range words {
		switch w {
		case "pkts":
			words[i] = "packets"
		case "msgs":
			words[i] = "messages"
		}
	}
	return strings.Join(words, "_")
}

// switchCounter is a family of a field of pipeline.Counters.
type switchCounter struct {
	family
	field int
}

// switchCounters are the families of the counters of the whole switch. A field without a counter's name
// says how full something is; tables have those.
var switchCounters = sync.OnceValue(func() (list []switchCounter) {
	for i, f := range reflect.VisibleFields(reflect.TypeFor[pipeline.Counters]()) {
		if name := f.Tag.Get("name"); name != "" && f.Type.Kind() == reflect.Uint64 {
			list = append(list, switchCounter{one("switch_"+spelled(name)+"_total", f.Tag.Get("help"), "rack"), i})
		}
	}
	return list
})

// Family describes a metric for the documentation.
type Family struct{ Name, Type, Help string }

// Families lists all metrics, sorted by name.
func Families() (list []Family) {
	add := func(f *family) {
		list = append(list, Family{f.name, map[bool]string{true: "counter", false: "gauge"}[f.counter()], f.help})
	}
	for _, f := range fixed {
		add(f)
	}
	for _, f := range nicCounters() {
		add(&f)
	}
	for _, c := range switchCounters() {
		add(&c.family)
	}
	for _, f := range trunkCounters() {
		add(&f)
	}
	slices.SortFunc(list, func(a, b Family) int { return strings.Compare(a.Name, b.Name) })
	return list
}
