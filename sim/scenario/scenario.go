package scenario

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/metrics"
	"github.com/rdmalab/rdmalab/softrnic/selective"
)

// Options of a run. The zero value is usable.
type Options struct {
	// Pcap receives the capture of every link, in virtual time; nil means none.
	Pcap io.Writer
	// Hash is true if the report gets a digest of all events of the run (see simnet.Hash).
	Hash bool
	// Short makes long scenarios shorter, for tests.
	Short bool
	// Cancelled, if not nil, is called at intervals. When it returns true, the run ends with
	// simnet.ErrCancelled.
	Cancelled func() bool
	// Findings is the number of findings after which the planned search of a setup ends; 0 means
	// maxFindings. Tests that need only one finding set it to 1.
	Findings int
	// Wrap, if not nil, may put a node around a host or the switch. Tests plant bugs with it and
	// check that the scenario finds them.
	Wrap func(name string, n simnet.Node) simnet.Node

	observe func(*simnet.Event) // sees the events of a run that is repeated for keptPromise
	rules   []fault.Rule        // for tests: replaces the fault rules that the scenario transport draws
	skew    int                 // for tests: is added to the limit at which the scenario srq refills its queue
	events  uint64              // for tests: bounds the events of the run; 0 means maxEvents
}

// Report is the result of a run. Err is nil if every check held.
type Report struct {
	Scenario string `json:"scenario"`
	Seed     uint64 `json:"seed"`
	// Plan describes the choices that the seed has made.
	Plan string `json:"plan"`
	Err  error  `json:"-"`
	// Error is Err as text.
	Error string `json:"error,omitempty"`
	// GaveUp is true if a client rightly reached its retry limit, because the links lost one
	// request, or its answers, at every try. The run ended there; Notes has the details.
	GaveUp bool `json:"gaveUp,omitempty"`
	// Damage describes the damage that a run under published rules, or of a published store or
	// program, did to its clients. Some scenarios add the holes that may cause it. Damage is not a
	// failure.
	Damage string `json:"damage,omitempty"`
	// Events is the number of events of the simulated network. Virtual is how long the run took in
	// virtual time, Took how long on this machine.
	Events  uint64        `json:"events"`
	Virtual time.Duration `json:"virtualNs"`
	Took    time.Duration `json:"tookNs"`
	// Counters has the sums of the counters of all NICs. Activity has those that are not zero, by
	// name.
	Counters metrics.NIC       `json:"-"`
	Activity map[string]uint64 `json:"counters,omitempty"`
	// Links has the sums of the counters of all links: frames sent, delivered, lost, duplicated,
	// delayed and corrupted.
	Links simnet.LinkStats `json:"links"`
	// Hash is the digest of all events of the run, if Options.Hash was set. Two runs with equal
	// digests have had the same events.
	Hash uint64 `json:"hash,omitempty"`
	// Notes are lines for a user who looks at a single run.
	Notes []string `json:"notes,omitempty"`
}

type Scenario struct {
	Name string
	// Doc is its description for a help text, on one line.
	Doc string
	run func(*env) error
	// cost is the cost model of the rack; nil means that work takes no virtual time. label is the
	// model's name on the command line.
	cost  *cost.Model
	label string
	// recovery is how the NICs' queue pairs recover from losses: the name of a kind, or Any; "" means
	// go-back-N.
	recovery   string
	congestion Congestion
	fabric     Fabric
}

// recoveriesMeant are other words for kinds of recovery.
var recoveriesMeant = map[string]string{"gbn": selective.GoBackN.String(), "sr": selective.IRN.String(), "selective": selective.IRN.String()}

// Recovering returns the scenario with NICs whose queue pairs recover from losses in the way that is
// called name, or, with Any, in a way that the seed chooses. It fails for a scenario that needs
// go-back-N.
func (s Scenario) Recovering(name string) (Scenario, error) {
	if _, known := selective.KindOf(name); !known && name != Any {
		return s, fmt.Errorf("--recovery %.40q: %suse %s", name, nearest.Meant(name, Recoveries(), recoveriesMeant), strings.Join(Recoveries(), ", "))
	}
	if s.recovery = name; name == selective.GoBackN.String() {
		s.recovery = ""
	}
	if s.recovery != "" && !slices.Contains(selectiveScenarios, s.Name) {
		return s, fmt.Errorf("scenario %.20s knows only --recovery %v: use %v", s.Name, selective.GoBackN, selectiveScenarios)
	}
	return s, nil
}

// Recoveries are the values of Recovering.
func Recoveries() []string { return append(slices.Clone(selective.Kinds()), Any) }

// selectiveScenarios are the scenarios that hold with selective retransmission, too. The others have
// a switch that answers by the rules of go-back-N, or, like locks, expect at most one change of memory
// in each step of a NIC, which may execute held requests of several connections in one step.
var selectiveScenarios = []string{"transport", "clover", "srq", "rnr", "crash", "partition"}

// With returns the scenario on a rack with the cost model m; nil means none. label is the value of
// --cost for m.
func (s Scenario) With(label string, m *cost.Model) Scenario {
	s.label, s.cost = label, m
	return s
}

// Args returns the arguments of rdmalab sim that replay a seed of the scenario.
func (s *Scenario) Args(seed uint64) string {
	args := fmt.Sprintf("%s --seed %d", s.Name, seed)
	if s.cost != nil {
		args += " --cost " + s.label
	}
	if s.recovery != "" {
		args += " --recovery " + s.recovery
	}
	return args + s.congestion.args() + s.fabric.args()
}

// All lists the scenarios in the order in which a help text shows them. A scenario with variants
// has the run of the variant without parameters.
func All() []Scenario {
	all := slices.Concat([]Scenario{
		{Name: "transport", Doc: "random operations on reliable connections under random faults; checks every byte, atomic, completion and counter", run: func(e *env) error { return new(transportPlan).run(e) }},
		{Name: "soak", Doc: "2000 WRITEs, READs and SENDs of 64 KiB and 20000 atomics at 10% loss both ways (seeds 2 to 5: " +
			"other faults)", run: (*env).runSoak},
		{Name: "crash", Doc: "a memory server's NIC crashes; its clients get an error completion within the retry time; " +
			"other connections are not affected", run: (*env).runCrash},
		{Name: "partition", Doc: "a host is cut off for less than the retry limit; nothing is lost", run: (*env).runPartition},
		{Name: "uc", Doc: "unreliable connections under random faults; the check computes the expected messages from the " +
			"packets that arrived", run: func(e *env) error { return new(ucRun).run(e) }},
		{Name: "ud", Doc: "datagrams with right and wrong Q_Keys under random faults; the check computes the expected " +
			"messages from the packets that arrived", run: func(e *env) error { return new(udRun).run(e) }},
		{Name: "srq", Doc: "connections under random faults to a shared receive queue, which is refilled at its limit event", run: func(e *env) error { return new(srqRun).run(e) }},
		{Name: "clover", Doc: "clients of the store Clover under random faults and crashes; checks that histories are " +
			"linearizable and no node (version of a value) is lost (--steer, --share-qp, --mix, --replicas, --threads)"},
		{Name: "rnr", Doc: "RNR NAKs: one receiver posts receives late, another never does", run: (*env).runRNR},
		{Name: "sherman", Doc: "clients of the tree Sherman under random faults and crashes; checks that histories are " +
			"linearizable, the tree is consistent and no lock stays taken (--torn, --mode, --locks, --mix, --step)"},
		{Name: "fusee", Doc: "clients of FUSEE's hash table under random faults of links and deaths of clients; checks that " +
			"histories are linearizable, the replicas of the index are equal and no dead client owns a block (--mode)"},
		{Name: "onerma", Doc: "1RMA NICs, which have no connections, under random faults, replayed frames, new keys and crashes; checks bounds of queues, " +
			"congestion windows, keys, bytes, and that no byte changes after the end of a WRITE", run: func(e *env) error { return new(soloPlan).run(e) }},
		{Name: "kvcs", Doc: "clients of the store kvcs on 1RMA NICs under random faults; servers crash, hang and are cut off; " +
			"checks that histories are linearizable", run: func(e *env) error { return new(cachePlan).run(e) }},
		{
			Name: "bytekeys", Doc: "a store of byte-string keys, of which several have the same hash, over the store template, under random faults and crashes; checks that histories are linearizable",
			run: func(e *env) error { return new(trialPlan).run(e, byteKeysTrial, nil) },
		},
		{Name: "state-store", Doc: "the switch counts requests in servers' memory under random faults and crashes; checks every counter, " +
			"and that each count is always in exactly one place", run: func(e *env) error { return new(statePlan).run(e) }},
		{Name: "telemetry", Doc: "the switch counts packets of any protocol, all or a sample, in sketches in servers' memory under random faults and crashes; " +
			"checks every counter, and that each count is always in exactly one place", run: func(e *env) error { return new(telePlan).run(e) }},
		{Name: "packet-trace", Doc: "the switch writes the headers of packets of any protocol, all or of a sample, to rings in servers' memory under random faults and " +
			"crashes; checks every record, that each is always in exactly one place, and the analysis", run: func(e *env) error { return new(tracePlan).run(e) }},
		{Name: "buffer", Doc: "the switch queues frames to a slow port in servers' memory under random faults and crashes; checks order, bytes, " +
			"and that every frame is where the counters say (--mode, --change)"},
		{Name: "lookup", Doc: "the switch looks up packets in servers' memory under random faults and crashes; checks what became of each packet, " +
			"order, bytes, and hits and misses (--mode)"},
		{Name: "balance", Doc: "the switch spreads connections to a virtual address over hosts, and keeps its choices in servers' memory, under random faults, crashes " +
			"and changes of the pool; checks that each connection stays with one host of the pool, order, bytes and answers", run: func(e *env) error { return new(balancePlan).run(e) }},
		{Name: "netcache", Doc: "the switch answers GETs of a key-value server with values that it keeps in servers' memory; datagrams are lost, doubled, late and in fragments, servers and " +
			"the switch crash; checks that each key's history is linearizable", run: func(e *env) error { return new(netcachePlan).run(e) }},
		{Name: "redn", Doc: "lookups and list walks that the server's NIC alone answers, by programs made of work requests, under random faults; its " +
			"process is killed, its NIC crashes; checks every answer (--mode)"},
		{Name: "redn-locks", Doc: "locks that the server's NIC alone hands out, by programs made of work requests, under random faults; clients die, " +
			"the server's process is killed; checks that one client at a time has a lock, in the order of the requests", run: func(e *env) error { return new(turnsPlan).run(e) }},
		holeScenarios()[0],
		{Name: "crowd", Doc: "1,000 connections on 4 words, whose atomics the switch replaces; PSNs wrap around, tables stay within their bounds", run: func(e *env) error { return new(crowd).run(e) }},
		{Name: "hostile", Doc: "one host attacks the connections of the others; these stay undisturbed, tables stay bounded, refusals are counted", run: func(e *env) error { return new(hostile).play(e) }},
		{Name: "locks", Doc: "16 clients lock and count on 4 words, whose atomics the switch replaces; checks that histories are linearizable, and that a lock never has two owners" +
			" (--program, --mode, --move, --change)"},
		{Name: "planned", Doc: "2 clients, 2 words, 2 connections of the switch to a server: tries every schedule of a few packets lost, late or doubled, and of rules that change;" +
			" checks that atomics are linearizable and no client fails because of a rule (--setup, --depth, --schedules, --plan)"},
	}, added())
	for i := range all {
		if f, ok := families[all[i].Name]; ok {
			all[i].run, _ = f.run(Params{}) // the zero Params are valid for each scenario
		}
	}
	return all
}

// Find returns the scenario with the given name: one of All, a single hole of the paper (such as
// hole-7), or a variant of a scenario by the name that it had before variants became flags. The
// error for an unknown name lists the scenarios and holes.
func Find(name string) (Scenario, error) {
	all := append(Variants(), holeScenarios()[1:]...)
	i := slices.IndexFunc(all, func(s Scenario) bool { return s.Name == name })
	if i < 0 {
		var names []string
		for _, s := range append(All(), holeScenarios()[1:]...) {
			names = append(names, s.Name)
		}
		return Scenario{}, fmt.Errorf("unknown scenario %.40q: %sthere are %v", name, nearest.Meant(name, names), names)
	}
	return all[i], nil
}

func (s Scenario) Run(seed uint64, opt Options) Report {
	e := newEnv(s, seed, opt)
	begun := wallNow()
	err := e.guarded(s.run)
	e.finish()
	var g *gaveUp
	if errors.As(err, &g) {
		if note, kept := s.keptPromise(seed, g, opt); kept {
			e.note("%s", note)
			e.report.GaveUp, err = true, nil
		}
	}
	if err != nil {
		e.report.Err, e.report.Error = err, err.Error()
	}
	e.report.Took = wallNow().Sub(begun)
	return e.report
}

func newEnv(s Scenario, seed uint64, opt Options) *env {
	return &env{
		seed: seed, opt: opt, draw: newDraw(seed), cost: s.cost, recovery: recoveryOf(s.recovery, seed), congested: drawCongestion(s.congestion, seed),
		fabric: s.fabric,
		report: Report{Scenario: s.Name, Seed: seed},
	}
}

// env is the environment of one run: its seed, options, rack and report.
type env struct {
	seed uint64
	opt  Options
	draw *draw
	cost *cost.Model
	v6   bool // the clients use IPv6
	// recovery is how queue pairs recover from losses.
	recovery selective.Kind
	// congested has the queues and the congestion control of the rack; nil means none.
	congested *congested
	fabric    Fabric // the switches of the rack
	// threads is how many threads of Clover's metadata server execute requests; 0 means that its
	// only thread does everything.
	threads int
	// replicas is how many copies each node of Clover has; 0 means one.
	replicas int
	rack     *simrack.Rack
	rec      *simrack.Recorder
	hash     simnet.Hash
	spy      func(*simnet.Event) // the scenario's function that sees all events; nil means none
	report   Report
}

// guarded runs run and converts a panic of the code under test into an error of this seed.
func (e *env) guarded(run func(*env) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	return run(e)
}

// Bounds of one run. The longest scenario, soak, needs about three million events and half a minute
// of virtual time.
const (
	maxEvents  = 100_000_000
	maxVirtual = clock.Time(10 * time.Minute)
)

// build builds the rack that the text of a rack file, yaml, describes.
func (e *env) build(yaml string, opt simrack.Options) error {
	s, err := rackfile.Parse([]byte(yaml + e.fabric.yaml()))
	if err != nil {
		return fmt.Errorf("rack of scenario: %w", err)
	}
	return e.buildOf(s, opt)
}

// buildOf is build for a rack file s that was parsed already. It does not change s.
func (e *env) buildOf(s *rackfile.Rack, opt simrack.Options) error {
	var err error
	opt.Recovery.Kind = e.recovery
	if e.congested != nil {
		s = e.congested.on(s, &opt)
		e.report.Plan += " " + e.congested.String()
	}
	if e.recovery != selective.GoBackN {
		e.report.Plan += fmt.Sprintf(" recovery=%v", e.recovery)
	}
	opt.Seed, opt.Wrap, opt.Cost = e.seed, wrapTwice(e.opt.Wrap, opt.Wrap), e.cost
	opt.MaxEvents, opt.MaxTime, opt.Cancelled = cmp.Or(e.opt.events, maxEvents), maxVirtual, e.opt.Cancelled
	if opt.Trace, err = e.tracer(); err != nil {
		return err
	}
	if e.rack, err = simrack.New(s, opt); err == nil {
		e.report.Plan += e.fabric.cut(e.rack, e.seed)
	}
	return err
}

// tracer begins the capture if the run has one. It returns the function that the simulator calls for
// each event; nil means that the run needs none.
func (e *env) tracer() (_ func(*simnet.Event), err error) {
	if e.opt.Pcap != nil {
		if e.rec, err = simrack.NewRecorder(e.opt.Pcap); err != nil {
			return nil, err
		}
	}
	if e.opt.Hash || e.rec != nil || e.opt.observe != nil || e.spy != nil {
		return e.trace, nil
	}
	return nil, nil
}

func (e *env) trace(ev *simnet.Event) {
	if e.opt.Hash {
		e.hash.Add(ev)
	}
	if e.rec != nil {
		e.rec.Record(ev)
	}
	if e.opt.observe != nil {
		e.opt.observe(ev)
	}
	if e.spy != nil {
		e.spy(ev)
	}
}

// wrapTwice returns a function that wraps a node by inner, and the result by outer; either may be
// nil.
func wrapTwice(inner, outer func(string, simnet.Node) simnet.Node) func(string, simnet.Node) simnet.Node {
	switch {
	case inner == nil:
		return outer
	case outer == nil:
		return inner
	}
	return func(name string, n simnet.Node) simnet.Node { return outer(name, inner(name, n)) }
}

// fail ends the run with an error, because a check of an application has failed.
func (e *env) fail(format string, args ...any) {
	e.rack.Stop(fmt.Errorf("at %v: %w", e.rack.Now(), fmt.Errorf(format, args...)))
}

// note adds a line to the report.
func (e *env) note(format string, args ...any) {
	e.report.Notes = append(e.report.Notes, fmt.Sprintf(format, args...))
}

// settleTime is how long the rack runs on, in virtual time, after the last client has returned, so
// that late frames arrive.
const settleTime = 100 * time.Millisecond

// run runs the rack until all clients have returned and late frames have arrived.
func (e *env) run() error {
	err := e.rack.Run()
	if found := e.rack.Deadlock(); found != "" {
		return errors.New(found)
	}
	if err != nil {
		return err
	}
	e.report.Virtual = e.rack.Now().Sub(clock.Time(0))
	if err := e.rack.Settle(settleTime); err != nil || e.congested == nil {
		return err
	}
	return e.congested.checkRest(e.rack)
}

// complete runs the rack until its clients have returned, and judges the run r. err is the result
// of the function that began r; if it is not nil, complete only returns it.
func (e *env) complete(r interface{ judge() error }, err error) error {
	if err == nil {
		err = e.run()
	}
	if err != nil {
		return err
	}
	return r.judge()
}
