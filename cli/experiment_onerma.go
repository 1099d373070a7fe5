package cli

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	kvcs "github.com/rdmalab/rdmalab/store/kvcs/plugin"
	"github.com/rdmalab/rdmalab/store/nictable"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

const (
	// soloBytes is the length of small READs; the median time of such READs alone is the unit of
	// all results. soloChunk is the length that the figures call 4 KB.
	soloBytes, soloChunk = 64, 4096
	// soloLatencies is how many READs a measurement of latency has.
	soloLatencies = 1000
	// soloEach is how many operations a run has for each operation in flight, and soloMost how many
	// it has at most.
	soloEach, soloMost = 2000, 20_000
	// soloBegun is how many READs of the background load the server must have answered before the
	// measured small READs begin.
	soloBegun = 4
	// soloPatience bounds the wait for these READs, soloEvery is the interval of the checks.
	soloPatience = 30 * time.Second
	soloEvery    = 5 * time.Millisecond
	soloValue    = 104 // bytes of a value, as in rackConfig
)

// soloTests has, for 1RMA and for RoCEv2, the tests of package perf, and the name of the counter of
// the READs that a server's NIC has answered.
var soloTests = map[string]struct{ lat, read, write, served string }{
	experiment.WaySolo: {perf.OneRMAReadLat, perf.OneRMAReadBW, perf.OneRMAWriteBW, "onerma_served"},
	experiment.WayRoCE: {perf.ReadLat, perf.ReadBW, perf.WriteBW, "rx_read_requests"},
}

func (p *rackPlatform) OneRMA(ctx context.Context, l experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	if _, ok := soloTests[l.Way]; !ok {
		return out, errors.ErrUnsupported
	}
	if p.rack.OneRMA == nil {
		return out, errors.New("the hosts of this rack have no 1RMA NICs: put `onerma: {}` into the rack file, then `rdmalab down` and `rdmalab up`")
	}
	if err := p.noStores(); err != nil {
		return out, err
	}
	if err := p.box.set(ctx, &experiment.Switch{}, nil, ""); err != nil {
		return out, err
	}
	if l.Slow() {
		return p.slow(ctx, &l)
	}
	r := &soloRun{on: p}
	unit, err := r.soloLatency(ctx, experiment.WaySolo, soloBytes) // measured for each load, because the machine's speed changes
	if err != nil {
		return out, err
	}
	r.trip = time.Duration(unit.Typical * float64(time.Microsecond))
	out.Rack = &experiment.OneRMARack{RTT: r.trip, FileRTT: p.rack.OneRMA.RTT}
	err = r.measure(ctx, &l, &out)
	return out, err
}

type soloRun struct {
	on   *rackPlatform
	trip time.Duration // the measured round trip, which is the unit of results
}

func (p *soloRun) measure(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	switch l.Kind {
	case experiment.SoloIdle:
		return p.soloBeside(ctx, &experiment.OneRMA{Way: l.Way}, soloBytes, out)
	case experiment.SoloBeside:
		return p.soloBeside(ctx, l, soloBytes, out)
	case experiment.SoloMixed:
		return p.soloBeside(ctx, l, soloChunk, out)
	case experiment.SoloSlots:
		return p.soloSlots(ctx, l, out)
	case experiment.SoloGets:
		return p.soloGets(ctx, l, out)
	case experiment.SoloCrash:
		return p.soloCrash(ctx, l, out)
	case experiment.SoloKeys:
		return p.soloKeys(ctx, l, out)
	}
	return errors.ErrUnsupported
}

func (p *soloRun) trips(d time.Duration) float64 { return float64(d) / float64(p.trip) }

// config returns the configuration of a test of package perf against the server of the experiment.
// With WayRoCE, the test's connections have the ACK timeout that all clients of experiments have.
func (p *soloRun) config(way, test string) *perf.Config {
	cfg := &perf.Config{Test: test, To: p.on.to}
	if way == experiment.WayRoCE {
		cfg.Timeout = experiment.StallTimeout
	}
	return cfg
}

// soloLatency measures READs of the first host, one at a time.
func (p *soloRun) soloLatency(ctx context.Context, way string, size int) (*perf.Latency, error) {
	cfg := p.config(way, soloTests[way].lat)
	cfg.Size, cfg.Iters = size, soloLatencies
	res, err := p.on.perf(ctx, p.on.hosts[0], cfg)
	if err == nil && res.Lat == nil {
		err = errors.New("the result of the test has no latency")
	}
	if err != nil {
		return nil, withNode(err, p.on.hosts[0])
	}
	return res.Lat, nil
}

// soloBeside measures READs of size bytes, one at a time, while the load's other READs run. If
// l.Large is 0, there are no other READs.
func (p *soloRun) soloBeside(ctx context.Context, l *experiment.OneRMA, size int, out *experiment.OneRMAResult) error {
	measure := func() error {
		lat, err := p.soloLatency(ctx, l.Way, size)
		if err == nil {
			us := float64(p.trip) / float64(time.Microsecond)
			out.Median, out.P99 = lat.Typical/us, lat.P99/us
			out.Rack.InTrip = us / lat.Average
		}
		return err
	}
	if l.Large == 0 {
		return measure()
	}
	other, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	before, err := p.on.counter(soloTests[l.Way].served)
	if err != nil {
		return err
	}
	cfg := p.config(l.Way, soloTests[l.Way].read)
	cfg.Size, cfg.Depth, cfg.Iters = l.Large, l.Slots, perf.MaxIters
	go func() {
		_, err := p.on.perf(other, p.on.hosts[0], cfg)
		ended <- withNode(err, p.on.hosts[0])
	}()
	early := func(why error) error { return errors.Join(errors.New("the other READs ended too early"), why) }
	for until := time.Now().Add(soloPatience); ; {
		now, err := p.on.counter(soloTests[l.Way].served)
		if err != nil {
			return err
		}
		if now >= before+soloBegun {
			break
		}
		if time.Now().After(until) {
			return errors.New("the other READs have not begun")
		}
		select {
		case why := <-ended:
			return early(why)
		case <-time.After(soloEvery):
		}
	}
	err = measure()
	select {
	case why := <-ended:
		return errors.Join(err, early(why))
	default:
	}
	end()
	if why := <-ended; why == nil { // the other READs ended before they were cancelled
		return errors.Join(err, early(nil))
	}
	return err
}

// soloSlots measures how many operations of 4 KB end in a round trip, with l.Slots of them in
// flight.
func (p *soloRun) soloSlots(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	cfg := p.config(l.Way, soloTests[l.Way].read)
	cfg.Size, cfg.Depth, cfg.Iters = soloChunk, l.Slots, min(soloEach*l.Slots, soloMost)
	if l.Write {
		cfg.Test = soloTests[l.Way].write
	}
	res, err := p.on.bandwidth(ctx, p.on.hosts[0], cfg)
	if err != nil {
		return withNode(err, p.on.hosts[0])
	}
	out.Rack.InTrip = float64(cfg.Iters) / p.trips(res.Elapsed)
	if res.Elapsed == 0 {
		out.Rack.InTrip = res.BW.MsgRate * 1e6 * p.trip.Seconds()
	}
	out.Median = float64(l.Slots) / out.Rack.InTrip // the mean, by Little's law
	return nil
}

// soloStore starts the store that the load's GETs use, kvcs for 1RMA and nictable for RoCEv2, and
// loads its keys. stop stops the store.
func (p *soloRun) soloStore(ctx context.Context, l *experiment.OneRMA) (run *storeRun, stop func() error, err error) {
	w, err := kv.FindWorkload("c")
	if err != nil {
		return nil, nil, err
	}
	f := &runFlags{clients: l.Hosts, out: runOutput{quiet: true}, config: rackConfig(p.on.rack, w, l.Hosts)}
	used := &kvcs.Store
	if l.Way == experiment.WayRoCE {
		used, f.options = &nictable.Store, store.ClientOptions{Gets: store.GetsReads}
	}
	f.store, f.config.Value = used.Name, soloValue
	run, err = p.on.filled(ctx, f, used)
	return run, func() error { return stopStore(p.on.cmd, used) }, err
}

func (p *soloRun) soloGets(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) error {
	run, stop, err := p.soloStore(ctx, l)
	if err != nil {
		return err
	}
	res, err := run.all(ctx, false)
	if err := errors.Join(err, stop()); err != nil {
		return err
	}
	if err := failedGETs(res); err != nil {
		return err
	}
	g := p.phase(res)
	out.Median, out.P99 = g.Median, g.P99
	out.Rack.InTrip = res.Throughput() * p.trip.Seconds()
	return nil
}

func (p *soloRun) phase(res *kv.Result) experiment.PhaseGETs {
	at := func(percentile float64) float64 { return p.trips(res.Percentile(kv.KindRead, percentile)) }
	return experiment.PhaseGETs{Median: at(50), P99: at(99), Max: at(100), Failed: float64(res.Failed + res.Wrong + res.NotFound)}
}

// soloCrash measures GETs in three runs. In the middle of the second run, the NIC of the memory
// server crashes.
func (p *soloRun) soloCrash(ctx context.Context, l *experiment.OneRMA, out *experiment.OneRMAResult) (err error) {
	run, stop, err := p.soloStore(ctx, l)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.setNIC(hostd.StateUp), stop()) }()
	for i := range out.Rack.Phases {
		crashed := make(chan error, 1)
		if i != 1 {
			crashed <- nil
		} else {
			go func() {
				err := pause(ctx, run.flags.config.Warmup+run.flags.config.Duration/2)
				if err == nil {
					err = p.setNIC(hostd.StateDown)
				}
				crashed <- err
			}()
		}
		res, err := run.all(ctx, false)
		if err := errors.Join(err, <-crashed); err != nil {
			return err
		}
		out.Rack.Phases[i] = p.phase(res)
		out.Rack.InTrip = res.Throughput() * p.trip.Seconds()
	}
	out.Median, out.P99 = out.Rack.Phases[1].Median, out.Rack.Phases[1].P99
	return nil
}

// setNIC crashes or starts the NIC of the memory server. An interrupt does not end its request.
func (p *soloRun) setNIC(state string) error {
	p.on.box.protect()
	client, err := hostControl(p.on.cmd, p.on.to)
	if err != nil {
		return err
	}
	return ask(context.WithoutCancel(p.on.cmd.Context()), client, p.on.to, http.MethodPost, hostd.PathNIC, hostd.NICRequest{State: state}, nil)
}
