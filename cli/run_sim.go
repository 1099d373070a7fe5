package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/experiment"
	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/sim/hugepages"
	"github.com/rdmalab/rdmalab/sim/simnet"
	"github.com/rdmalab/rdmalab/sim/simrack"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/cost"
	"github.com/rdmalab/rdmalab/softrnic/memservice"
	"github.com/rdmalab/rdmalab/softrnic/rdmacm"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/store"
	"github.com/rdmalab/rdmalab/store/kv"
	"github.com/rdmalab/rdmalab/store/spans"
	"github.com/rdmalab/rdmalab/swordbox/apps"
	"github.com/rdmalab/rdmalab/topo/hostd"
)

// Default times of a run in virtual time. They are short because simulating a second takes minutes.
const (
	simWarmup   = 500 * time.Microsecond
	simDuration = 5 * time.Millisecond
)

// runPlace says where a run is: on a rack, or in virtual time with a rack file, a cost model and a
// seed. file is the path of the rack file; "" means the built-in rack. Commands without the flag --on
// use the zero value, a rack that is up.
type runPlace struct {
	on, file, cost string
	seed           uint64
	workers        int // see simrack.Rack.RunApart; 0 means that nothing runs apart
}

// checkOn checks the flag --on and the flags that depend on it. For --on sim it sets the default
// times of a run in virtual time.
func (f *runFlags) checkOn() error {
	switch {
	case f.place.on == "":
	case f.place.on == experiment.OnRack && (f.typed("cost") || f.typed("seed") || f.typed("file") || f.typed("workers")):
		return errors.New("--file, --cost, --seed and --workers are for a run in virtual time: use them with --on sim")
	case f.place.on == experiment.OnRack:
	case f.place.on != experiment.OnSim:
		return fmt.Errorf("--on %.20q: %swant %s or %s", f.place.on, nearest.Meant(f.place.on, []string{experiment.OnRack, experiment.OnSim}), experiment.OnRack, experiment.OnSim)
	default:
		f.useTimes(simWarmup, simDuration)
	}
	return checkWorkers(f.place.workers)
}

// maxWorkers bounds the processors of a run in virtual time; a rack has no more shards.
const maxWorkers = 80

func workersFlag(fs *pflag.FlagSet, dst *int, when string) {
	fs.IntVar(dst, "workers", 0, when+"processors that run the rack, each leaf with its hosts by itself; 0 means one for all in one piece")
}

func checkWorkers(n int) error {
	if n < 0 || n > maxWorkers {
		return fmt.Errorf("--workers %d: want 0 to %d", n, maxWorkers)
	}
	return nil
}

// useTimes sets the times of the run that were not typed.
func (f *runFlags) useTimes(warmup, duration time.Duration) {
	if !f.typed("warmup") {
		f.config.Warmup = warmup
	}
	if !f.typed("duration") {
		f.config.Duration = duration
	}
}

// rackOfRun returns the rack of a run in virtual time. Its switch has the program and the rules that
// --steer asks for from the start.
func (f *runFlags) rackOfRun() (*rackfile.Rack, error) {
	rack, err := simFile(f.place.file)
	if err != nil {
		return nil, err
	}
	if rack.Cost != "" && !f.typed("cost") {
		f.place.cost = rack.Cost
	}
	if f.place.workers > 0 && rack.Fabric == nil {
		return nil, badUse("--workers needs a rack with several switches: give the rack file the key fabric (see docs/guide/fabric.md)")
	}
	if f.steer == "" {
		return rack, nil
	}
	was := program{name: rack.Switch.Program}
	for _, r := range rack.Switch.Rules {
		was.rules, was.ids = append(was.rules, r.String()), append(was.ids, r.ID)
	}
	want := steering(rack, was, f.steer)
	rack.Switch.Program, rack.Switch.Rules = want.name, nil
	for _, text := range want.rules {
		r, err := rules.Parse(text)
		if err == nil {
			err = r.Resolve(rack.Addresses)
		}
		if err != nil {
			return nil, fmt.Errorf("--steer %s: %w", f.steer, err)
		}
		rack.Switch.Rules = append(rack.Switch.Rules, r)
	}
	return rack, nil
}

// simRun is a run on a rack in virtual time. As on a rack, the store's own commands send
// requests to the store's nodes (store.Node) on the hosts.
type simRun struct {
	storeRun
	desc  *store.Store
	rack  *simrack.Rack
	spec  *rackfile.Rack
	nodes map[string]store.Node // by host: the store's nodes on the compute and metadata hosts
	ctl   map[string]*control.Client
	ended context.Context // ends when the run is interrupted
	began time.Time       // the time that spans have in place of the beginning of virtual time
	spans []kv.Span       // operations that the run has recorded
}

func (f *runFlags) measureSim(cmd *cobra.Command) (rep *runReport, err error) {
	desc, err := store.Find(f.store)
	if err != nil {
		return nil, err
	}
	rack, err := f.rackOfRun()
	if err != nil {
		return nil, err
	}
	hugepages.Reserve()
	model, err := loadCost(f.place.cost)
	if err != nil {
		return nil, err
	}
	s, err := f.newSimRun(cmd, desc, rack, model)
	if err != nil {
		return nil, err
	}
	defer s.rack.Close()
	s.rack.Host(s.hosts[0]).Go("run", false, func(verbs.Context) {
		var err error
		rep, err = s.measure()
		s.rack.Stop(err)
	})
	if err := s.rack.Run(); errors.Is(err, simnet.ErrCancelled) {
		return nil, s.ended.Err()
	} else if err != nil {
		return nil, err
	}
	told := either(f.out.quiet, io.Discard, cmd.ErrOrStderr())
	if f.place.workers > 0 {
		took := time.Since(s.began)
		fmt.Fprintf(told, "%d events in %v with %d workers: %.2f million a second\n", s.rack.Events(), took.Round(time.Millisecond), f.place.workers, float64(s.rack.Events())/took.Seconds()/1e6)
	}
	return rep, f.out.spans.export(s.ended, told, s.spans, spans.About{Store: f.store, Workload: rep.Workload})
}

// newSimRun makes the rack of a run in virtual time.
func (f *runFlags) newSimRun(cmd *cobra.Command, desc *store.Store, rack *rackfile.Rack, model *cost.Model) (s *simRun, err error) {
	s = &simRun{
		storeRun: storeRun{flags: f, cmd: cmd}, desc: desc, spec: rack, ended: cmd.Context(),
		nodes: map[string]store.Node{}, ctl: map[string]*control.Client{}, began: time.Now(),
	}
	s.rack, err = simrack.New(rack, simrack.Options{
		Seed: f.place.seed, Cost: model, Transits: true, Datagrams: len(rack.Switch.Rules) > 0 || f.place.workers > 0, Nodes: apps.SteeredNodes, Cancelled: func() bool { return s.ended.Err() != nil },
	})
	if err == nil {
		s.hostsUp()
	}
	return s, err
}

// hostsUp starts the memory service on each memory server, and makes the store's node on every
// other host.
func (s *simRun) hostsUp() {
	for i := range s.spec.Hosts {
		h := s.rack.Host(s.spec.Hosts[i].Name)
		if h.Spec.Role == rackfile.Memory {
			h.Go("memory", true, func(ctx verbs.Context) {
				m, err := memservice.New(ctx, h.Manager(ctx), memservice.Config{Region: int(h.Spec.Memory), Locks: hostd.LockTable})
				if err == nil {
					err = m.Serve()
				}
				s.rack.Stop(err)
			})
			continue
		}
		var m control.Mux
		node := s.desc.Node(&simHost{h, s.spec, h.Manager(h.Context("connections"))})
		node.Routes(&m)
		s.nodes[h.Spec.Name], s.ctl[h.Spec.Name] = node, control.ClientOf(&m)
		if h.Spec.Role == rackfile.Compute {
			s.hosts = append(s.hosts, h.Spec.Name)
		}
	}
}

func (s *simRun) measure() (*runReport, error) {
	f := s.flags
	if err := s.ready(s.call()); err != nil {
		return nil, err
	}
	before := s.traffic()
	res, err := s.all(f.loadOnly)
	if err != nil {
		return nil, err
	}
	res.Stamp(s.began, 0)
	s.spans = res.Spans
	return s.report(res, before, s.traffic()), nil
}

// call is what sends requests of the store's commands to its nodes.
func (s *simRun) call() *store.Call {
	return &store.Call{
		Context: s.ended, Store: s.desc, Rack: s.spec, Err: io.Discard, Free: func() error { return nil },
		// The context of one request may have a limit in real time, which a run in virtual time must not have.
		Ask: func(_ context.Context, host, path string, in, out any) error {
			host = cmp.Or(host, s.hosts[0])
			if err := s.ctl[host].Call(s.ended, http.MethodPost, path, in, out); err != nil {
				return fmt.Errorf("host %s: %w", host, err)
			}
			return nil
		},
	}
}

// ready starts the store for the workload, and loads its keys.
func (s *simRun) ready(call *store.Call) error {
	f := s.flags
	if err := s.prepare(s.desc, call); err != nil {
		return err
	}
	if f.noLoad || f.loadOnly || s.loaded {
		return nil
	}
	if _, err := s.all(true); err != nil {
		return fmt.Errorf("load: %w", err)
	}
	return nil
}

func (s *simRun) all(load bool) (*kv.Result, error) {
	s.issued = 0
	requests, err := s.requests(load)
	if err != nil {
		return nil, err
	}
	var threads []verbs.Runtime
	parts := make([]clientPart, s.flags.config.Clients)
	for i := range requests {
		in := &requests[i]
		in.MaxValue = max(in.Config.Value, kv.MinValue)
		ops, err := in.Ops()
		if err != nil {
			return nil, err
		}
		open, err := s.nodes[s.hosts[i]].Clients(in.ClientOptions)
		if err != nil {
			return nil, err
		}
		v := s.rack.Host(s.hosts[i]).Context("clients")
		list := open(v)
		defer func() { _ = list.Close() }() // the clients have ended when this runs
		for id := in.First; id < in.First+in.Count; id++ {
			v.Runtime().Go(fmt.Sprintf("client-%d", id), func() {
				p := &parts[id]
				p.res, p.err = in.Client(s.ended, list, v.Runtime(), id, ops, nil, func() { p.issued++ })
			})
		}
		threads = append(threads, v.Runtime())
	}
	if s.flags.place.workers > 0 {
		if err := s.rack.RunApart(s.flags.place.workers, threads...); err != nil {
			return nil, err
		}
	}
	for _, rt := range threads {
		rt.Wait()
	}
	total, errs := new(kv.Result), []error(nil)
	for i := range parts {
		p := &parts[i]
		s.issued += p.issued
		if p.res != nil {
			total.Merge(p.res)
		}
		if p.err != nil {
			errs = append(errs, p.err)
		}
	}
	return total, errors.Join(errs[:min(len(errs), 3)]...)
}

// clientPart is what one client has done.
type clientPart struct {
	res    *kv.Result
	err    error
	issued uint64
}

func (s *simRun) traffic() (t traffic) {
	for _, h := range s.rack.Hosts() {
		p := h.Ingress()
		t.packets += p.RxPackets
		t.bytes += p.RxBytes
	}
	return t
}

type simHost struct {
	host    *simrack.Host
	rack    *rackfile.Rack
	manager rdmacm.Manager
}

var _ store.Host = (*simHost)(nil)

func (s *simHost) Name() string { return s.host.Spec.Name }

func (s *simHost) Address(name string) (netip.Addr, error) { return s.rack.Address(name) }

func (s *simHost) NameOf(addr string) string { return s.rack.NameOf(addr) }

func (s *simHost) Manager() rdmacm.Manager { return s.manager }

func (s *simHost) Context() verbs.Context { return s.host.Context("service") }

func (s *simHost) Log() *slog.Logger { return slog.New(slog.DiscardHandler) }

func (s *simHost) Service(f func() error) error { return f() }

func (s *simHost) Do(r *http.Request, job string, f func(ctx context.Context, v verbs.Context) error) error {
	v := s.host.Context(job)
	return errors.Join(f(r.Context(), v), v.Close())
}
