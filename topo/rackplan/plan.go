package rackplan

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
)

// Running is what a rack that is up has.
type Running struct {
	// Rack is its description, without guests.
	Rack *rackfile.Rack
	// Program and Rules are what its switch runs.
	Program string
	Rules   []rules.Rule
	// Faults are the fault rules that are installed, also those that have ended by themselves.
	// Torn copies are no such rules: Of takes those of the description as installed.
	Faults []fault.Rule
	// Guests are hosts that are not in the description, and have addresses of its subnets.
	Guests []rackfile.Host
	// Unfinished names hosts that an earlier plan has begun to make or to remove.
	Unfinished []string
}

// OfDescription is Running for a rack whose switch runs what the description says.
func OfDescription(r *rackfile.Rack) Running {
	return Running{Rack: r, Program: r.Switch.Program, Rules: r.Switch.Rules, Faults: fault.Named(r.Faults)}
}

// Op says what happens to a part of the rack.
type Op string

// Operations. Their text is the sign in front of a change.
const (
	Add    Op = "+"
	Remove Op = "-"
	Modify Op = "~"
)

// Change is one line of a plan.
type Change struct {
	Op Op
	// Part is what changes: "host cn4", "fault f1", "rule r1", "switch".
	Part string
	// Text describes it: what is added or removed, or "BEFORE -> AFTER".
	Text string
}

func (c Change) String() string {
	return strings.TrimSpace(string(c.Op) + " " + c.Part + "  " + c.Text)
}

// Plan is the difference between a rack that is up and a rack file. Its lists are in the order in
// which they are carried out.
type Plan struct {
	// Rack is the description of the rack after the plan.
	Rack *rackfile.Rack
	// Changes are the lines of the plan; none means that nothing is to be done.
	Changes []Change
	// FaultsOut are the fault rules that end, FaultsIn those that are installed afterwards.
	FaultsOut, FaultsIn []fault.Rule
	// HostsOut are the hosts that are removed, HostsIn those that are made afterwards. A host in
	// both lists is made again.
	HostsOut, HostsIn []string
	// Switch is true if the switch gets the program and rules of Rack.Switch.
	Switch bool
	// Quotas names the hosts that stay and get other quotas.
	Quotas []string
}

// Empty reports whether nothing is to be done.
func (p *Plan) Empty() bool { return len(p.Changes) == 0 }

func (p *Plan) add(op Op, part, format string, args ...any) {
	p.Changes = append(p.Changes, Change{op, part, fmt.Sprintf(format, args...)})
}

// ErrRefused means that a difference cannot be carried out on a rack that is up. The error's text says what to
// do instead.
var ErrRefused = errors.New("cannot change while the rack is up")

// refusal is one reason for an ErrRefused.
type refusal struct{ what, instead string }

// Of returns the plan that makes the running rack the rack of a file, `want`. With replace, a host
// whose change is impossible while it runs is removed and made again. The error is an ErrRefused.
// Of changes none of its arguments.
func Of(now Running, want *rackfile.Rack, replace bool) (*Plan, error) {
	p := &Plan{}
	refused := wholes(now.Rack, want)
	target, err := merge(now, want)
	if err != nil {
		return nil, err
	}
	p.Rack = target
	refused = append(refused, p.hosts(now, target, replace)...)
	if len(refused) > 0 {
		return nil, refuse(refused)
	}
	p.quotas(now, target)
	p.rules(now, target)
	p.renew(p.faults(now, target))
	return p, nil
}

// refuse makes one line of several reasons. It shows the first, and how many others there are.
func refuse(list []refusal) error {
	more := ""
	if n := len(list) - 1; n > 0 {
		var names []string
		for _, r := range list[1:] {
			names = append(names, r.what)
		}
		more = "; likewise: " + strings.Join(names, ", ")
	}
	return fmt.Errorf("%s %w: %s%s", list[0].what, ErrRefused, list[0].instead, more)
}

// contains reports whether a host is in the list.
func contains(list []string, host string) bool { return slices.Contains(list, host) }
