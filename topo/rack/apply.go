package rack

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/control"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/topo/guests"
	"github.com/rdmalab/rdmalab/topo/rackplan"
)

// applyWait bounds one request of an apply to a daemon.
const applyWait = 10 * time.Second

// Applier changes a rack that is up so that it becomes the rack of a file. package rackplan says what
// is to be done.
type Applier struct {
	rack *Rack
	want *rackfile.Rack
	// replace allows that hosts which have changed are removed and added; see rackplan.Of.
	replace bool
}

// Applier returns what makes the rack the rack of a description. With replace it may remove and add again
// hosts that have changed; see rackplan.Of.
func (r *Rack) Applier(want *rackfile.Rack, replace bool) Applier { return Applier{r, want, replace} }

// ApplyError says that an apply has stopped after it had begun: Step is what failed, and Left are the
// steps after it. What is done stays done, and the next apply does the rest.
type ApplyError struct {
	Step string
	Left []string
	Err  error
}

func (e *ApplyError) Error() string { return fmt.Sprintf("%s: %v", e.Step, e.Err) }

func (e *ApplyError) Unwrap() error { return e.Err }

// Plan returns what Apply would do. It changes nothing.
func (a Applier) Plan(ctx context.Context) (*rackplan.Plan, error) {
	now, err := a.running(ctx)
	if err != nil {
		return nil, rackError(a.rack.Spec.Name, err)
	}
	p, err := rackplan.Of(now.Running, a.want, a.replace)
	if err == nil {
		err = a.possible(ctx, &now, p)
	}
	return p, rackError(a.rack.Spec.Name, err)
}

// Apply makes the rack that of the description. It first refuses what cannot be done, and then calls
// begin with the plan, and done after each step with its text. If a step fails, the error is an
// ApplyError: the description of the rack then says what was done, and a further Apply does the rest.
// Hosts and connections that the plan does not name are not touched.
func (a Applier) Apply(ctx context.Context, begin func(*rackplan.Plan), done func(step string)) error {
	return a.rack.locked(ctx, func() error {
		fresh, err := Open(a.rack.name()) // another program may have changed the rack before this one had the lock
		if err != nil {
			return err
		}
		a.rack.Spec = fresh.Spec
		p, err := a.Plan(ctx)
		if err != nil {
			return err
		}
		begin(p)
		if p.Empty() {
			return nil
		}
		return rackError(a.rack.Spec.Name, a.carryOut(ctx, p, done))
	})
}

// runningRack is what Apply finds out about the rack.
type runningRack struct {
	rackplan.Running
	// bound is how many flows would break if the switch's program were replaced.
	bound int
}

// running asks the switch what it runs.
func (a Applier) running(ctx context.Context) (now runningRack, err error) {
	now.Rack = a.rack.Spec
	for i, name := range a.rack.Spec.SwitchNames() {
		var program struct {
			Name  string `json:"name"`
			Bound int    `json:"bound"`
		}
		var faults []fault.Status
		var list []rules.Rule
		for path, out := range map[string]any{"/program": &program, "/rules": &list, "/faults": &faults} {
			if err := a.ask(ctx, name, http.MethodGet, path, nil, out); err != nil {
				return now, fmt.Errorf("%w (%w)", ErrNoSwitch, err)
			}
		}
		if i == 0 { // the program of the leaves, of which this is the first
			now.Program = program.Name
		}
		now.bound += program.Bound
		now.Rules = append(now.Rules, list...)
		for _, f := range faults {
			now.Faults = append(now.Faults, f.Rule)
		}
	}
	if a.rack.Spec.Fabric != nil { // in the order of the description, in which they were one list
		place := func(id string) int {
			return slices.IndexFunc(a.rack.Spec.Switch.Rules, func(o rules.Rule) bool { return o.ID == id })
		}
		slices.SortStableFunc(now.Rules, func(a, b rules.Rule) int { return cmp.Compare(uint(place(a.ID)), uint(place(b.ID))) })
	}
	list, err := guests.List(a.rack.Paths)
	for i := range list {
		now.Guests = append(now.Guests, list[i].Host)
	}
	now.Unfinished = unfinished(a.rack.Paths)
	return now, err
}

// unfinished lists the hosts that an apply has begun to add or to remove, and has not finished.
func unfinished(p rackfile.Paths) (names []string) {
	entries, _ := os.ReadDir(filepath.Dir(p.Unfinished("x"))) // there is no such folder before the first apply
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// possible refuses a plan that this rack cannot carry out now.
func (a Applier) possible(ctx context.Context, now *runningRack, p *rackplan.Plan) error {
	if p.Empty() {
		return nil
	}
	if a.rack.Containers() != nil && len(p.HostsIn)+len(p.HostsOut) > 0 {
		return fmt.Errorf("hosts that are containers %w: %s", rackplan.ErrRefused, rackplan.Again(a.rack.Spec.Name))
	}
	if now.bound > 0 && now.Program != p.Rack.Switch.Program {
		return fmt.Errorf("program %s %w: requests of %d flows were moved, and only it can continue them: end the connections that "+
			"`rdmalab switch connections` lists as shared, and try again", now.Program, rackplan.ErrRefused, now.bound)
	}
	for _, nic := range a.toTell(p) {
		host := rackfile.MachineOf(nic)
		hung, err := a.rack.keep.hung(host)
		if err != nil {
			return err
		}
		if hung {
			return fmt.Errorf("host %s hangs, and could not be told: `rdmalab resume %s` first", host, host)
		}
		if ok, err := a.rack.alive(host); err != nil || !ok {
			continue // it reads the description when it starts again
		}
		if err := answer(ctx, a.rack.Control(nic), nil); err != nil {
			return fmt.Errorf("host %s does not answer, and could not be told: see `rdmalab logs %s` (%w)", host, host, err)
		}
	}
	return nil
}

// toTell lists the hosts that must read the description again after the plan: those that stay, if hosts
// come or go, and those with new quotas.
func (a Applier) toTell(p *rackplan.Plan) (names []string) {
	for _, host := range a.rack.Spec.NICNames() {
		stays := !slices.Contains(p.HostsOut, host)
		if stays && len(p.HostsIn)+len(p.HostsOut) > 0 || slices.Contains(p.Quotas, host) {
			names = append(names, host)
		}
	}
	return names
}

// step is a part of a plan that is done or not done.
type step struct {
	text string
	do   func(context.Context) error
}

// carryOut does the steps of a plan. After each, the rack's description says what the rack has.
func (a Applier) carryOut(ctx context.Context, p *rackplan.Plan, done func(step string)) error {
	steps := a.steps(p)
	for i, s := range steps {
		err := ctx.Err()
		if err == nil {
			err = s.do(ctx)
		}
		if err != nil {
			e := &ApplyError{Step: s.text, Err: err}
			for _, later := range steps[i+1:] {
				e.Left = append(e.Left, later.text)
			}
			return e
		}
		a.rack.reached(s.text)
		done(s.text)
	}
	return a.describe(func(s *rackfile.Rack) { *s = *p.Rack }) // what is left is the order of the faults
}

func (a Applier) steps(p *rackplan.Plan) (list []step) {
	add := func(text string, do func(context.Context) error) { list = append(list, step{text, do}) }
	for _, f := range p.FaultsOut {
		add("- fault "+f.ID, func(ctx context.Context) error { return a.endFault(ctx, f) })
	}
	for _, host := range p.HostsOut {
		add("- host "+host, func(ctx context.Context) error { return a.removeHost(ctx, host) })
	}
	for _, host := range p.HostsIn {
		add("+ host "+host, func(ctx context.Context) error { return a.addHost(ctx, host, p.Rack) })
	}
	if len(p.HostsIn)+len(p.HostsOut) > 0 {
		add("~ addresses of the hosts", func(ctx context.Context) error { return a.tell(ctx, a.rack.Spec.NICNames()) })
	}
	if p.Switch {
		add("~ program and rules of the switch", func(ctx context.Context) error { return a.setSwitch(ctx, &p.Rack.Switch) })
	}
	for _, host := range p.Quotas {
		add("~ quota of "+host, func(ctx context.Context) error { return a.setQuota(ctx, host, p.Rack) })
	}
	for _, f := range p.FaultsIn {
		add("+ fault "+f.ID, func(ctx context.Context) error { return a.beginFault(ctx, f) })
	}
	return list
}

// ask sends a request to a daemon.
func (a Applier) ask(ctx context.Context, node, method, path string, in, out any) error {
	ctx, cancel := context.WithTimeout(ctx, applyWait)
	defer cancel()
	return a.rack.Control(node).Call(ctx, method, path, in, out)
}

// describe changes the rack's description: a copy, which then replaces the file.
func (a Applier) describe(change func(s *rackfile.Rack)) error {
	next := *a.rack.Spec
	next.Hosts, next.Faults = slices.Clone(next.Hosts), fault.Named(next.Faults)
	change(&next)
	data, err := next.Encode()
	if err != nil {
		return err
	}
	part := a.rack.Paths.Spec() + ".part" // the controller may be killed during the write
	if err := os.WriteFile(part, data, 0o644); err != nil {
		return err
	}
	if err := os.Rename(part, a.rack.Paths.Spec()); err != nil {
		return err
	}
	a.rack.Spec = &next
	return a.rewriteHosts()
}

// rewriteHosts writes the file that hosts see as /etc/hosts into the same file, because they have it
// mounted.
func (a Applier) rewriteHosts() error {
	f, err := os.OpenFile(a.rack.Paths.Hosts(), os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	text := hostsFile(a.rack.Spec)
	_, err = f.WriteString(text)
	return errors.Join(err, f.Truncate(int64(len(text))), f.Close())
}

// tell makes daemons read the description again. A daemon that does not run reads it when it starts.
func (a Applier) tell(ctx context.Context, names []string) error {
	return each(names, func(node string) error {
		err := a.ask(ctx, node, http.MethodPost, "/rack", nil, nil)
		if errors.Is(err, control.ErrNotRunning) && !a.rack.Spec.IsSwitch(node) {
			return nil
		}
		return err
	})
}

func (a Applier) setSwitch(ctx context.Context, to *rackfile.Switch) error {
	if err := a.describe(func(s *rackfile.Rack) { s.Switch = *to }); err != nil {
		return err
	}
	if err := a.tell(ctx, a.rack.Spec.SwitchNames()); err != nil {
		return err
	}
	for _, name := range a.rack.Spec.SwitchNames() {
		own := a.rack.Spec.OnSwitch(name).Switch
		body := struct {
			Name  string   `json:"name"`
			Rules []string `json:"rules,omitempty"`
		}{own.Program, ruleTexts(own.Rules)}
		if err := a.ask(ctx, name, http.MethodPut, "/program", body, nil); err != nil {
			return err
		}
	}
	return nil
}

func ruleTexts(list []rules.Rule) (out []string) {
	for i := range list {
		out = append(out, list[i].String())
	}
	return out
}

func (a Applier) setQuota(ctx context.Context, host string, target *rackfile.Rack) error {
	w, _, _ := target.Host(host)
	err := a.describe(func(s *rackfile.Rack) {
		h, _, _ := s.Host(host)
		h.Quota = w.Quota
	})
	if err != nil {
		return err
	}
	return a.tell(ctx, []string{host})
}

// tear is the body of a request for torn copies; see hostd.Tear.
type tear struct {
	Probability float64       `json:"probability"`
	Seed        uint64        `json:"seed,omitempty"`
	Pause       time.Duration `json:"pause,omitempty"`
	For         time.Duration `json:"for,omitempty"`
}

func (a Applier) beginFault(ctx context.Context, f fault.Rule) (err error) {
	if f.Kind == fault.Tear {
		t := tear{f.Probability, f.Seed, f.Delay, f.For}
		if t.Probability == 0 {
			t.Probability = 1
		}
		if err = a.ask(ctx, f.Link, http.MethodPost, "/tear", t, nil); errors.Is(err, control.ErrNotRunning) {
			err = nil // the host has crashed: it reads the description when it is restarted
		}
	} else {
		err = a.ask(ctx, a.rack.Spec.SwitchOf(f.Link), http.MethodPost, "/faults", f, nil)
	}
	if err != nil {
		return err
	}
	return a.describe(func(s *rackfile.Rack) { s.Faults = append(without(s.Faults, f.ID), f) })
}

func (a Applier) endFault(ctx context.Context, f fault.Rule) (err error) {
	if f.Kind == fault.Tear {
		if err = a.ask(ctx, f.Link, http.MethodDelete, "/tear", nil, nil); errors.Is(err, control.ErrNotRunning) {
			err = nil // torn copies end with the host's process
		}
	} else {
		err = a.ask(ctx, a.rack.Spec.SwitchOf(f.Link), http.MethodDelete, "/faults/"+url.PathEscape(f.ID), nil, nil)
	}
	var said *control.Error
	if gone := errors.As(err, &said) && said.Status == http.StatusNotFound; err != nil && !gone {
		return err
	}
	return a.describe(func(s *rackfile.Rack) { s.Faults = without(s.Faults, f.ID) })
}

// without returns the faults except the one with an ID.
func without(list []fault.Rule, id string) []fault.Rule {
	return slices.DeleteFunc(slices.Clone(list), func(f fault.Rule) bool { return f.ID == id })
}
