package executor

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/onerma/nic"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
	"github.com/rdmalab/rdmalab/softrnic/wire/onerma"
	"github.com/rdmalab/rdmalab/units"
)

// Policy sets the congestion windows of one executor. Its methods are called one at a time and must not
// block. Window.Size and Window.Own are what it may change.
type Policy interface {
	// Begin is called before the first Ended with a window: when the window is made, and when the policy
	// replaces another one under transfers. Then the window has the size that the other policy has left,
	// and Own is nil. local is true for the executor's local window, false for that of a peer and
	// direction.
	Begin(w *Window, local bool)
	// Ended is called when an operation has ended, before the next one is issued, with the local window
	// and the one of the operation's peer and direction. o is valid during the call.
	Ended(o *Outcome, local, remote *Window)
}

// Outcome says how an operation of at most 4096 bytes ended.
type Outcome struct {
	Now    clock.Time
	Op     onerma.Op
	Status nic.Status
	Length int // bytes
	// IssueDelay is how long the operation waited in the local NIC. TotalDelay includes it.
	IssueDelay, TotalDelay time.Duration
}

// Names of the policies that the package has.
const (
	// Published is algorithm 1 of the paper, and the default. TotalDelay is its variant of figure 15
	// (Config.TotalDelay). Fixed leaves all windows at Config.First.
	Published  = "1rma"
	TotalDelay = "total-delay"
	Fixed      = "fixed"
)

var policies = map[string]func(c Config) Policy{
	Published:  func(c Config) Policy { return &algorithm1{cfg: c} },
	TotalDelay: func(c Config) Policy { return &totalDelay{algorithm1{cfg: c}} },
	Fixed:      func(c Config) Policy { return fixed(c.First) },
}

// Register adds a policy that another module has, under a name of small letters, digits and dashes. of makes
// the Policy of one executor, whose parameters c has no zeros. Init functions call Register. It panics if
// the name is taken or is no name, or if `of` is nil. remove removes the policy; only tests call it.
func Register(name string, of func(c Config) Policy) (remove func()) {
	if policies[name] != nil || of == nil || !units.IsName(name) {
		panic(fmt.Sprintf("congestion policy %q: the name is taken, is no name, or has no function", name))
	}
	policies[name] = of
	return func() { delete(policies, name) }
}

// Policies returns the names of all policies in their order.
func Policies() (names []string) {
	for name := range policies {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// Policy returns the name of the policy that sets the windows.
func (e *Executor) Policy() string { return e.cfg.Policy }

// Use replaces the policy while transfers go on. Operations in flight stay in flight, and the new policy
// hears how they end. The caller must then call Tick. An unknown name is an error, after which the former
// policy goes on.
func (e *Executor) Use(now clock.Time, name string) error {
	of := policies[name]
	if of == nil {
		return opError(verbs.ErrInvalid, "no congestion policy %.40q: use one of %s", name, strings.Join(Policies(), ", "))
	}
	e.cfg.Policy, e.deadline = name, now
	e.policy = of(e.cfg)
	e.begin(&e.local, true)
	for _, f := range e.order {
		e.begin(&f.Window, false)
	}
	return nil
}

// begin hands a window to the policy.
func (e *Executor) begin(w *Window, local bool) {
	w.Own, w.dropped, w.next = nil, false, 0 // no pace of another size
	e.policy.Begin(w, local)
	w.bound(&e.cfg)
}

// fixed is the policy without congestion control: windows of this size.
type fixed float64

func (f fixed) Begin(w *Window, _ bool)          { w.Size = float64(f) }
func (f fixed) Ended(*Outcome, *Window, *Window) {}

// algorithm1 is the paper's policy.
type algorithm1 struct{ cfg Config }

func (p *algorithm1) Begin(*Window, bool) {}

func (p *algorithm1) Ended(o *Outcome, local, remote *Window) {
	switch o.Status {
	case nic.OK:
		local.succeeded(o.Now, &p.cfg, o.IssueDelay, p.cfg.LocalTarget)
		remote.succeeded(o.Now, &p.cfg, o.TotalDelay-o.IssueDelay, p.cfg.remoteTarget(o.Op))
	case nic.DispatchTimeout:
		local.failed(o.Now, &p.cfg)
	case nic.NACK, nic.Timeout:
		remote.failed(o.Now, &p.cfg)
	case nic.RemoteAuthenticationFailure: // no change: a refused key says nothing about congestion
	}
}

// totalDelay is the paper's policy without the local signal.
type totalDelay struct{ algorithm1 }

func (p *totalDelay) Begin(w *Window, local bool) {
	if local {
		w.Size = p.cfg.Most
	}
}

func (p *totalDelay) Ended(o *Outcome, _, remote *Window) {
	switch o.Status {
	case nic.OK:
		remote.succeeded(o.Now, &p.cfg, o.TotalDelay, p.cfg.remoteTarget(o.Op)+p.cfg.LocalTarget)
	case nic.DispatchTimeout, nic.NACK, nic.Timeout:
		remote.failed(o.Now, &p.cfg)
	case nic.RemoteAuthenticationFailure:
	}
}
