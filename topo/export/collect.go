package export

import (
	"context"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/topo/rack"
	"github.com/rdmalab/rdmalab/topo/top/live"
)

const (
	// shared is how old a reading may be that a scrape gets.
	shared = time.Second
	// countersWait bounds how long a scrape waits for the counters of a host.
	countersWait = 2 * time.Second
	// maxRacks bounds the racks of a scrape, and maxSeries the series of a family, if daemons choose the
	// values of its labels.
	maxRacks  = 64
	maxSeries = 4096
	// maxValue is how many characters the value of a label has at most.
	maxValue = 128
)

// Config says what is collected.
type Config struct {
	Version string
	// Racks returns the names of the racks, when a scrape asks.
	Racks func() []string
	// Read and Counters ask a rack and the NIC of one of its hosts; nil means the real ones. Only tests
	// set them.
	Read     func(ctx context.Context, name string) (*live.Reading, error)
	Counters func(ctx context.Context, paths rackfile.Paths, host string) (hostd.Counters, error)
}

// Collector is a prometheus.Collector of racks. It is safe for concurrent use.
type Collector struct {
	cfg Config

	mu      sync.Mutex
	sources map[string]*source
}

// source is a rack with the counters of its NICs.
type source struct {
	live.Source
	mu       sync.Mutex
	of       *live.Reading // the reading to which counters belong
	counters []hostd.Counters
	took     time.Duration
}

var _ prometheus.Collector = (*Collector)(nil)

// New returns a Collector.
func New(cfg Config) *Collector {
	if cfg.Counters == nil {
		cfg.Counters = func(ctx context.Context, paths rackfile.Paths, host string) (c hostd.Counters, err error) {
			err = control.NewClient(paths.Socket(host)).Call(ctx, http.MethodGet, hostd.PathCounters, nil, &c)
			return c, err
		}
	}
	return &Collector{cfg: cfg, sources: make(map[string]*source)}
}

// Describe implements prometheus.Collector.
func (c *Collector) Describe(out chan<- *prometheus.Desc) {
	for _, f := range fixed {
		out <- f.desc()
	}
	for _, f := range nicCounters() {
		out <- f.desc()
	}
	for _, c := range switchCounters() {
		out <- c.desc()
	}
	for _, f := range trunkCounters() {
		out <- f.desc()
	}
}

// Collect implements prometheus.Collector. A rack that is not there has the metric rack_up alone.
func (c *Collector) Collect(out chan<- prometheus.Metric) {
	s := sink{out: out}
	s.put(&buildInfo, 1, c.cfg.Version)
	names := c.cfg.Racks()
	var all sync.WaitGroup
	for _, src := range c.of(names[:min(len(names), maxRacks)]) {
		all.Go(func() {
			s := sink{out: out, rack: src.Name}
			g, counters, took := src.get(c.cfg.Counters)
			if g == nil {
				s.ofRack(&rackUp, 0)
				return
			}
			s.ofRack(&readTime, took.Seconds())
			s.reading(g, counters)
		})
	}
	all.Wait()
}

// of returns the sources of racks. Those of other racks are forgotten.
func (c *Collector) of(names []string) (list []*source) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for name := range c.sources {
		if !slices.Contains(names, name) {
			delete(c.sources, name)
		}
	}
	for _, name := range names {
		if c.sources[name] == nil {
			c.sources[name] = &source{Source: live.Source{Name: name, MaxAge: shared, Read: c.cfg.Read}}
			list = append(list, c.sources[name])
		} else if !slices.Contains(list, c.sources[name]) {
			list = append(list, c.sources[name])
		}
	}
	return list
}

// get returns a reading of the rack with the counters of its NICs, in the order of its hosts, or nil if
// there is no rack.
func (s *source) get(ask func(ctx context.Context, paths rackfile.Paths, host string) (hostd.Counters, error)) (*live.Reading, []hostd.Counters, time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	begin := time.Now()
	g, err := s.Get(context.Background())
	if err != nil {
		return nil, nil, 0
	}
	if g == s.of {
		return g, s.counters, s.took
	}
	ctx, cancel := context.WithTimeout(context.Background(), countersWait)
	defer cancel()
	list := make([]hostd.Counters, len(g.Status.Hosts))
	var all sync.WaitGroup
	for i := range g.Status.Hosts {
		switch g.Status.Hosts[i].State {
		case rack.StateCrashed, rack.StateHung, rack.StateSilent, rack.StateLost: // there is no answer to wait for
		default:
			all.Go(func() { list[i], _ = ask(ctx, g.Paths, g.Status.Hosts[i].Name) }) // a host that does not answer has no counters
		}
	}
	all.Wait()
	s.of, s.counters, s.took = g, list, time.Since(begin)
	return g, list, s.took
}

// sink makes the metrics of a rack.
type sink struct {
	out  chan<- prometheus.Metric
	rack string
	// seen are the series with labels that daemons have chosen; series counts them for each family.
	seen   map[string]struct{}
	series map[string]int
}

func (s *sink) put(f *family, value float64, labels ...string) {
	kind := prometheus.GaugeValue
	if f.counter() {
		kind = prometheus.CounterValue
	}
	s.out <- prometheus.MustNewConstMetric(f.desc(), kind, value, labels...)
}

func (s *sink) ofRack(f *family, value float64, labels ...string) {
	s.put(f, value, append([]string{s.rack}, labels...)...)
}

// chosen is ofRack for labels whose values a daemon has chosen: their number and length is bounded, they
// are valid UTF-8, and a series comes once.
func (s *sink) chosen(f *family, value float64, labels ...string) {
	for i, l := range labels {
		labels[i] = fmt.Sprintf("%.*s", maxValue, toValid(l))
	}
	key := fmt.Sprintf("%s%q", f.name, labels)
	if _, ok := s.seen[key]; ok || s.series[f.name] >= maxSeries {
		return
	}
	if s.seen == nil {
		s.seen, s.series = make(map[string]struct{}), make(map[string]int)
	}
	s.seen[key] = struct{}{}
	s.series[f.name]++
	s.ofRack(f, value, labels...)
}

func number(is bool) float64 {
	if is {
		return 1
	}
	return 0
}

func (s *sink) reading(g *live.Reading, counters []hostd.Counters) {
	s.ofRack(&rackUp, number(g.Status.State == rack.StateUp))
	s.ofRack(&rackSlow, float64(max(1, g.Status.Slow)))
	for i := range g.Status.Switches {
		s.node(&g.Status.Switches[i])
	}
	if len(g.Status.Switches) == 0 {
		s.node(&g.Status.Switch)
	}
	s.trunks(g)
	for i := range g.Status.Hosts {
		n, d := &g.Status.Hosts[i], &g.Hosts[i]
		s.node(n)
		s.ofRack(&linkUp, number(n.Link == rack.LinkUp), n.Name)
		if len(n.Daemon) > 0 {
			s.host(n.Name, d)
		}
		for _, one := range counters[i].Samples {
			if f, ok := nicCounters()[one.Name]; ok {
				s.chosen(&f, float64(one.Value), n.Name)
			}
		}
	}
	for i := range g.Status.Guests {
		s.chosen(&guestUp, number(g.Status.Guests[i].Link == rack.LinkUp), g.Status.Guests[i].Name)
	}
	s.faults(g.Faults)
	if len(g.Status.Switch.Daemon) > 0 {
		s.ofSwitch(g)
	}
}

func (s *sink) node(n *rack.NodeStatus) {
	s.ofRack(&nodeUp, number(n.State == rack.StateUp), n.Name, n.Role)
	s.ofRack(&nodeState, 1, n.Name, string(n.State))
}

func (s *sink) host(name string, d *hostd.Status) {
	s.ofRack(&daemonUp, float64(d.Process.Goroutines), name)
	s.ofRack(&daemonMem, float64(d.Process.LiveHeap), name)
	s.ofRack(&nicUp, number(d.NIC.State == hostd.StateUp), name)
	s.ofRack(&nicPrograms, float64(len(d.Programs)), name)
	qps := make(map[[2]string]int)
	for i := range d.QPs {
		qps[[2]string{d.QPs[i].Type, d.QPs[i].State}]++
	}
	for k, n := range qps {
		s.chosen(&nicQPs, float64(n), name, k[0], k[1])
	}
	if c := d.Clients; c != nil {
		s.ofRack(&storeClients, float64(c.Count), name)
		s.ofRack(&storeRate, float64(c.Rate), name)
		s.ofRack(&storeP99, c.P99/1e6, name)
	}
	for _, st := range d.Stores {
		desc, err := store.Find(st.Store)
		if err != nil {
			continue // of another version
		}
		for i, column := range desc.Columns[:min(len(desc.Columns), len(st.Values))] {
			s.chosen(&storeEvents, float64(st.Values[i]), name, st.Store, column)
		}
	}
}

func (s *sink) faults(list []fault.Status) {
	for i := range list {
		f := &list[i]
		s.chosen(&faultActive, number(f.State == fault.Active), f.ID, f.Link, string(f.Kind))
		s.chosen(&faultHits, float64(f.HitsUp), f.ID, f.Link, string(f.Kind), string(fault.Up))
		s.chosen(&faultHits, float64(f.HitsDown), f.ID, f.Link, string(f.Kind), string(fault.Down))
	}
}

// trunks writes the trunks between switches, and what their ends on several machines count.
func (s *sink) trunks(g *live.Reading) {
	for _, t := range g.Status.Trunks {
		s.ofRack(&trunkUp, number(t.Link == rack.LinkUp), t.Name)
	}
	for i := range g.Trunks {
		end := &g.Trunks[i]
		s.ofRack(&trunkMTU, float64(end.MTU), end.Trunk, end.Switch)
		if end.Shortest > 0 {
			s.ofRack(&trunkTrip, end.RoundTrip.Seconds(), end.Trunk, end.Switch)
			s.ofRack(&trunkAhead, end.Ahead.Seconds(), end.Trunk, end.Switch)
		}
		for _, one := range end.Samples() {
			if f, ok := trunkCounters()[one.Name]; ok {
				s.ofRack(&f, float64(one.Value), end.Trunk, end.Switch)
			}
		}
	}
}

func (s *sink) ofSwitch(g *live.Reading) {
	st := &g.Switch
	s.ofRack(&daemonUp, float64(st.Process.Goroutines), rackfile.SwitchName)
	s.ofRack(&daemonMem, float64(st.Process.LiveHeap), rackfile.SwitchName)
	s.ofRack(&switchUptime, st.Uptime.Seconds())
	s.ofRack(&switchParts, float64(len(st.Partition)))
	s.ofRack(&switchDelayed, float64(st.Delayed))
	s.ofRack(&switchRuns, float64(st.Captures))
	s.ofRack(&switchLost, float64(st.CaptureLost))
	s.chosen(&programInfo, 1, g.Status.Switch.Program)
	v := reflect.ValueOf(&g.Counters.Switch).Elem()
	for _, c := range switchCounters() {
		s.ofRack(&c.family, float64(v.Field(c.field).Uint()))
	}
	for i := range g.Counters.Ports {
		p := &g.Counters.Ports[i]
		for _, one := range []struct {
			f *family
			v uint64
		}{
			{&portRxPackets, p.RxPackets},
			{&portRxBytes, p.RxBytes},
			{&portRxRoCE, p.RxRoCE},
			{&portMalformed, p.Malformed},
			{&portTxPackets, p.SentPackets},
			{&portTxBytes, p.SentBytes},
		} {
			s.chosen(one.f, float64(one.v), p.Host)
		}
		s.chosen(&portDrops, float64(p.RxRing), p.Host, "rx-ring")
		for reason, n := range p.Drops {
			s.chosen(&portDrops, float64(n), p.Host, string(reason))
		}
	}
	for reason, n := range g.Counters.Lost {
		s.chosen(&switchDrops, float64(n), string(reason))
	}
	for _, t := range g.Tables {
		s.chosen(&switchTable, float64(t.Used), t.Name)
		s.chosen(&switchRoom, float64(t.Max), t.Name)
	}
	for _, group := range g.Groups {
		for _, one := range group.Counters {
			s.chosen(&programEvents, float64(one.Value), group.Name, one.Name)
		}
	}
	for _, c := range g.Sample().Switch.Shared {
		s.chosen(&sharedFlight, float64(c.Open), c.Name)
		s.chosen(&sharedQueue, float64(c.Queued), c.Name)
	}
}
