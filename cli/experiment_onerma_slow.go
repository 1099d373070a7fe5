package cli

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/perf"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/topo/hostd"
	"github.com/rdmalab/rdmalab/units"
)

const (
	// slowestRTT is the least rtt of a rack file for slow motion. With a smaller one, the time slices of
	// other processes would be a large part of a round trip. slowWindow is the largest window of a
	// NIC in bytes (key window of the rack file): with a larger one, no READ waits for room in it.
	slowestRTT = 10 * time.Millisecond
	slowWindow = 128 << 10
	// slowLeastHosts is how many hosts figure 10 of the 1RMA paper needs.
	slowLeastHosts = 6
	// slowNeighbours bounds how many neighbour entries (ARP) all hosts together need to borrow
	// memory from each other. By default the kernel of this machine has at most 1,024 of them, for
	// all its network namespaces.
	slowNeighbours = 800
	// A host gets the time slowSetup to prepare a load, and slowSetupPeer more for each peer whose
	// memory it borrows.
	slowSetup, slowSetupPeer = time.Second, 50 * time.Millisecond
	// If the hosts of a load are not ready in time, the load is tried again, slowTries times in
	// all. Each try gives them four times as long as the one before.
	slowTries = 3
	// slowTail is how long a load waits, after its last READ has begun, for the READs to end; in
	// round trips.
	slowTail = 100
	// slowEndless is how many READs an endless flow has in flight: more than a link can carry in a
	// round trip.
	slowEndless = 64
	// slowRules is the prefix of the names of the fault rules that make the slow network.
	slowRules = "slow-motion-"
)

// slowFit returns an error if the parameters onerma of a rack file do not fit a measurement in slow
// motion (experiment.SlowMotion).
func slowFit(o *rackfile.OneRMA) error {
	if o.RTT >= slowestRTT && o.Dispatch == 2*o.RTT && o.Timeout == 4*o.RTT && o.Window <= slowWindow {
		return nil
	}
	return fmt.Errorf("onerma of the rack file has rtt %v, dispatch %v, timeout %v and window %s; slow motion needs an rtt of at least %v, a dispatch of 2 and a timeout of 4 of it, and a window up to %s: use %s",
		o.RTT, o.Dispatch, o.Timeout, units.FormatSize(o.Window), slowestRTT, units.FormatSize(slowWindow), experiment.SlowRack)
}

type slowRun struct {
	on *rackPlatform
	*experiment.OneRMA
	rtt  time.Duration // the length of a round trip: the rtt of the rack file
	late int           // how many tries of the load failed because a host was not ready in time
}

// errSlowLate is the error of a load in which a host began later than planned; slow tries the load
// again.
var errSlowLate = errors.New("a host was not ready in time, because this machine is busy")

// slow measures a load in slow motion. Its fault rules end with it, also after an interrupt.
func (p *rackPlatform) slow(ctx context.Context, l *experiment.OneRMA) (out experiment.OneRMAResult, err error) {
	if err := slowFit(p.rack.OneRMA); err != nil {
		return out, err
	}
	r := &slowRun{on: p, OneRMA: l, rtt: p.rack.OneRMA.RTT}
	out.Rack = &experiment.OneRMARack{RTT: r.rtt, FileRTT: r.rtt, Window: p.rack.OneRMA.Window}
	p.box.protect()
	if err := r.heal(); err != nil { // ends the rules that a killed run has left
		return out, err
	}
	defer func() { err = errors.Join(err, r.heal()) }()
	if err := r.inject(ctx); err != nil {
		return out, err
	}
	measure := r.ramp
	switch l.Kind {
	case experiment.SoloRandom:
		measure = r.random
	case experiment.SoloDemand:
		measure = r.demand
	}
	err = errSlowLate
	for tries := 0; tries < slowTries && errors.Is(err, errSlowLate); tries++ {
		r.late = tries
		err = measure(ctx, &out)
	}
	return out, err
}

// times returns how long a number of round trips takes on the rack. real converts a time of the
// paper's testbed into the time that it takes in slow motion; testbed converts it back.
func (r *slowRun) times(trips float64) time.Duration { return time.Duration(trips * float64(r.rtt)) }

func (r *slowRun) real(d time.Duration) time.Duration {
	return time.Duration(float64(d) * experiment.SlowMotion(r.rtt))
}

func (r *slowRun) testbed(d time.Duration) time.Duration {
	return time.Duration(float64(d) / experiment.SlowMotion(r.rtt))
}

// line returns the line rate in bits per second.
func (r *slowRun) line() float64 { return experiment.OneRMARate / experiment.SlowMotion(r.rtt) }

func (r *slowRun) switchControl() *control.Client { return boxOf(r.on.rack.Name) }

// boxOf returns a client of the switch of a rack that has one.
func boxOf(rack string) *control.Client {
	return control.NewClient(rackfile.PathsOf(rack).Socket(rackfile.SwitchName))
}

// rules returns the two fault rules of a link: one limits its rate to the line rate, and one delays
// each frame by a fixed time and a random time between 0 and the load's Jitter.
func (r *slowRun) rules(link string) []fault.Rule {
	jitter := r.real(r.Jitter) / 2
	return []fault.Rule{
		{ID: slowRules + "rate-" + link, Link: link, Kind: fault.Rate, BitsPerSecond: int64(r.line())},
		{ID: slowRules + "delay-" + link, Link: link, Kind: fault.Delay, Delay: r.real(experiment.OneRMALinkDelay) + jitter, Jitter: jitter},
	}
}

func (r *slowRun) inject(ctx context.Context) error {
	var list []fault.Status
	box := r.switchControl()
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/faults", nil, &list); err != nil {
		return err
	}
	for _, f := range list {
		if f.State == fault.Active {
			return fmt.Errorf("the links have faults, like %s, which would change the network: end them by `rdmalab heal`", f.ID)
		}
	}
	for _, link := range r.on.rack.HostNames() {
		for _, rule := range r.rules(link) {
			if err := ask(ctx, box, rackfile.SwitchName, http.MethodPost, "/faults", rule, nil); err != nil {
				return err
			}
		}
	}
	return nil
}

// heal ends the fault rules. An interrupt does not end its requests.
func (r *slowRun) heal() error {
	ctx := context.WithoutCancel(r.on.cmd.Context())
	return endFaults(ctx, r.switchControl(), slowRules)
}

// endFaults ends the fault rules of a switch whose IDs begin with a prefix.
func endFaults(ctx context.Context, box *control.Client, prefix string) error {
	var list []fault.Status
	if err := ask(ctx, box, rackfile.SwitchName, http.MethodGet, "/faults", nil, &list); err != nil {
		return fmt.Errorf("the links keep their faults; `rdmalab heal` ends them: %w", err)
	}
	var errs []error
	for _, f := range list {
		if strings.HasPrefix(f.ID, prefix) {
			errs = append(errs, ask(ctx, box, rackfile.SwitchName, http.MethodDelete, "/faults/"+url.PathEscape(f.ID), nil, nil))
		}
	}
	return errors.Join(errs...)
}

type slowLoad struct {
	host string
	perf.Load
}

// load returns the load of a host that reads from others. begin and end are in round trips after the
// common time `start`.
func (r *slowRun) load(host string, to []string, start time.Time, begin, end float64) slowLoad {
	at := func(trips float64) int64 { return start.Add(r.times(trips)).UnixNano() }
	return slowLoad{host, perf.Load{
		To: to, RoCE: r.Way == experiment.WayRoCE, Size: onerma.MaxOp, Begin: at(begin), End: at(end), Last: at(end + slowTail),
		LoadControl: perf.LoadControl{First: r.First, TotalDelay: r.TotalDelay},
	}}
}

// start returns the time at which to begin loads that read from n hosts each: the hosts need the
// time until then to prepare. After each try in which a host was not ready, they get four times as
// long.
func (r *slowRun) start(n int) time.Time {
	return time.Now().Add((slowSetup + time.Duration(n)*slowSetupPeer) << (2 * r.late))
}

// all runs the loads at the same time. If a load fails, the function cancels the others and returns
// the error of the load that failed first.
func (r *slowRun) all(ctx context.Context, loads []slowLoad) ([]perf.LoadResult, error) {
	out := make([]perf.LoadResult, len(loads))
	hosts := make([]string, len(loads))
	for i := range loads {
		hosts[i] = loads[i].host
		loads[i].Seed = uint64(i + 1)
	}
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	err := atOnce(hosts, func(i int, host string) error {
		client, err := hostControl(r.on.cmd, host)
		if err == nil {
			err = withNode(client.Call(ctx, http.MethodPost, hostd.PathLoad, &loads[i].Load, &out[i]), host)
		}
		if err != nil {
			fail(err)
		}
		return err
	})
	if err != nil {
		err = context.Cause(ctx)
	}
	return out, err
}

// arrivals returns how many READs a host begins in a second, so that its load is the share r.Load
// of the line rate.
func (r *slowRun) arrivals() float64 { return r.Load * r.line() / 8 / onerma.MaxFrame }

// slowPeers returns the hosts that host number i reads from: all others, or, if they are too many
// for slowNeighbours, some that follow it in the list. Each host reads from as many hosts as read
// from it.
func slowPeers(hosts []string, i int) (to []string) {
	n := len(hosts) - 1
	if len(hosts)*n > slowNeighbours {
		n = slowNeighbours / len(hosts) / 2 // a host also has those as neighbours that read from it
	}
	for k := range n {
		to = append(to, hosts[(i+1+k)%len(hosts)])
	}
	return to
}

func (r *slowRun) random(ctx context.Context, out *experiment.OneRMAResult) error {
	hosts := r.on.hosts[:min(len(r.on.hosts), r.Hosts)]
	if len(hosts) < slowLeastHosts {
		return fmt.Errorf("%d compute hosts are too few for random traffic, which needs %d: use %s", len(hosts), slowLeastHosts, experiment.SlowRack)
	}
	for _, name := range hosts {
		if h, _, ok := r.on.rack.Host(name); ok && h.Memory == 0 {
			return fmt.Errorf("%s lends no memory to RoCEv2; give the compute hosts some (memory: 1MiB), as in %s", name, experiment.SlowRack)
		}
	}
	start := r.start(len(slowPeers(hosts, 0)))
	span := float64(r.Span) / float64(experiment.OneRMARTT)
	var loads []slowLoad
	for i, host := range hosts {
		l := r.load(host, slowPeers(hosts, i), start, 0, 2*span) // the first half is not counted
		l.Rate = r.arrivals()
		loads = append(loads, l)
	}
	results, err := r.all(ctx, loads)
	if err != nil {
		return err
	}
	from, err := slowFrom(results, start.Add(r.times(span)), start.Add(r.times(1.5*span)))
	if err != nil {
		return err
	}
	s := slowSum(results, from, loads[0].End, loads[0].Last)
	out.Rack.Hosts, out.Rack.Peers = len(hosts), len(loads[0].To)
	err = r.fill(&s, out)
	out.Goodput /= float64(len(hosts))
	return err
}

// demand measures a client that begins READs at random times, without congestion control. A READ
// that fails is not tried again.
func (r *slowRun) demand(ctx context.Context, out *experiment.OneRMAResult) error {
	start := r.start(1)
	span := float64(r.Span) / float64(experiment.OneRMARTT)
	l := r.load(r.on.hosts[0], []string{r.on.to}, start, 0, 1.5*span) // the first third is not counted
	l.Rate, l.Open = r.arrivals(), true
	results, err := r.all(ctx, []slowLoad{l})
	if err != nil {
		return err
	}
	from, err := slowFrom(results, start.Add(r.times(span/2)), start.Add(r.times(span)))
	if err != nil {
		return err
	}
	s := slowSum(results, from, l.End, l.End)
	return r.fill(&s, out)
}

// ramp measures after how many round trips a flow has the line rate, and after how many round trips
// a second flow, which begins later, has its share. In SoloRamp the second flow has READs of
// another client from the same server. In SoloLocal it has READs of another process of the same
// client from another server.
func (r *slowRun) ramp(ctx context.Context, out *experiment.OneRMAResult) error {
	if len(r.on.hosts) < 2 {
		return errors.New("a second flow needs two compute hosts")
	}
	start := r.start(1)
	end := experiment.OneRMASecond + float64(r.Span)/float64(experiment.OneRMARTT)
	client, server := r.on.hosts[1], r.on.to
	if r.Kind == experiment.SoloLocal {
		client, server = r.on.hosts[0], r.on.hosts[1]
	}
	loads := []slowLoad{r.load(r.on.hosts[0], []string{r.on.to}, start, 0, end), r.load(client, []string{server}, start, experiment.OneRMASecond, end)}
	for i := range loads {
		loads[i].Depth = slowEndless
	}
	results, err := r.all(ctx, loads)
	if err != nil {
		return err
	}
	for i, begin := range []float64{0, experiment.OneRMASecond} {
		if _, err := slowFrom(results[i:i+1], start, start.Add(r.times(begin+experiment.OneRMAFairStep))); err != nil {
			return err
		}
	}
	out.Ramp = r.lineAfter(&results[0], min(results[1].Began, loads[1].Begin))
	out.Fair = r.fairAfter(results, loads[0].End)
	return nil
}
