package rackfile

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/verbs"
)

// Names of the switch programs.
const (
	// ProgramForward is the program that forwards packets unchanged.
	ProgramForward = "forward"
	// ProgramSwordBox is the program that works on requests to memory servers as its rules say.
	ProgramSwordBox = "swordbox"
)

// programs has the names of the programs: those of this project first, then those that AddProgram has
// added.
var programs = []string{ProgramForward, ProgramSwordBox}

// Programs lists the names of the programs that a rack file can name.
func Programs() []string { return slices.Clone(programs) }

// AddProgram makes rack files accept the name of a further program. Package swordbox/apps calls it for
// each program that another module registers, in an init function. It panics if the name is taken or
// has other characters than small letters, digits and dashes. remove removes the name; only tests call
// it.
func AddProgram(name string) (remove func()) {
	if slices.Contains(programs, name) || checkName("program", name, maxRackName) != nil {
		panic(fmt.Sprintf("switch program %q: the name is taken, or is no name", name))
	}
	programs = append(programs, name)
	return func() { programs = slices.DeleteFunc(programs, func(n string) bool { return n == name }) }
}

// ruleEntry is one element of the list rules of the switch.
type ruleEntry struct {
	at, serverAt, serviceAt ast.Node
	rule                    rules.Rule
	sound                   bool // no mistake was found in the element
}

// ruleEntry reads one element of the list rules. Its keys are those of rules on the command line.
func (d *decoder) ruleEntry(n ast.Node) ruleEntry {
	e := ruleEntry{at: n, serverAt: n, serviceAt: n, rule: rules.Start()}
	seen := make(map[string]bool)
	var entries []entry
	for _, f := range rules.Fields() {
		entries = append(entries, entry{key: f.Key, set: func(n ast.Node) {
			seen[f.Key] = true
			switch f.Key {
			case "server":
				e.serverAt = n
			case "service":
				e.serviceAt = n
			}
			text(d, n, f.Key, func(s string) (struct{}, error) { return struct{}{}, f.Set(&e.rule, s) })
		}})
	}
	e.sound = d.sound(func() {
		if !d.sound(func() { d.mapping(n, "a rule", entries) }) {
			return
		}
		if err := e.rule.Finish(func(key string) bool { return seen[key] }); err != nil {
			d.errorf(n, "%v", err)
		}
	})
	return e
}

// rules resolves the servers of the rules and checks that the rules fit the rack and each other.
func (d *decoder) rules(f *file, r *Rack) {
	if len(f.rules) > 0 && f.Switch.Program != ProgramSwordBox {
		d.errorf(f.rules[0].at, "rules are for program %s; write program: %s beside them, or remove them", ProgramSwordBox, ProgramSwordBox)
		return
	}
	refused := false // without a refused rule, NewSet would number the later ones wrongly
	for i := range f.rules {
		e := &f.rules[i]
		if !e.sound {
			return // without this rule, NewSet cannot find conflicts with later ones
		}
		if err := e.rule.Resolve(r.Addresses); err != nil {
			d.errorf(e.serverAt, "server: %v", rules.ListHosts(err, r.HostNames()))
			refused = true
			continue
		}
		if err := r.CheckRule(&e.rule); err != nil {
			d.errorf(e.serviceAt, "%v", err)
			refused = true
			continue
		}
		if refused {
			continue
		}
		set, err := rules.NewSet(append(r.Switch.Rules[:i:i], e.rule))
		if err != nil {
			d.errorf(e.at, "%v", err)
			return // later rules may be wrong only because of this one
		}
		r.Switch.Rules = set.All()
	}
}

// CheckRule returns an error if this rack cannot carry out a rule. The rule's server must be
// resolved.
func (r *Rack) CheckRule(rule *rules.Rule) error {
	needs := rule.Moves() && rule.Mode == rules.Hardened || (rule.Observes() || rule.Queues()) && rule.Dials()
	if rule.Service != "" && needs && r.Connect == ConnectTCP {
		return errNoManager
	}
	if (rule.Moves() || rule.Action == rules.Steer) && slices.ContainsFunc(r.Hosts, func(h Host) bool { return h.PKeys != nil }) {
		return errPartitions
	}
	if (rule.Moves() || rule.Action == rules.Steer) && slices.ContainsFunc(r.Hosts, func(h Host) bool { return h.Recovery != "" }) {
		return errRecovery
	}
	if r.Fabric != nil {
		return r.Fabric.steers(r, rule, r.Switch.Rules)
	}
	return nil
}

// errRecovery is the error for a rack that has recovery and a rule of action move, atomics or steer:
// the switch answers and repeats packets of such connections by the rules of go-back-N.
var errRecovery = errors.New("a host of this rack has recovery, and rules put requests on connections that the switch repeats by go-back-n; " +
	"remove recovery, or take a rule that only watches: track or count")

// errPartitions is the error for a rack that has pkeys and a rule of action move, atomics or steer.
// Move and atomics put requests on the switch's shared connections. These are in the default
// partition, so a request that moves there would reach memory that its client's partition does not
// reach. In mode published, steer repairs appends on such a connection, too.
var errPartitions = errors.New("a host of this rack has pkeys, and rules put requests of all partitions on one connection; " +
	"remove pkeys, or take a rule that only watches: track or count")

// errNoManager is the error for a rule whose connections the switch cannot make: with connect: tcp,
// hosts have no connection manager that answers the switch's datagrams.
var errNoManager = errors.New("the hosts of a rack with connect: tcp have no connection manager that the switch could ask; " +
	"write service: none and give it connections by `rdmalab switch connections adopt`, or remove connect: tcp")

// Names has the names of the hosts and of the switches by their addresses. Rack.Names makes it.
type Names map[netip.Addr]string

// Names returns the names of the hosts and of the switches by address.
func (r *Rack) Names() Names {
	n := make(Names)
	for _, s := range r.SwitchAddresses() {
		n[s.IPv4], n[s.IPv6] = s.Name, s.Name
	}
	for _, host := range r.NICNames() {
		for _, a := range r.Addresses(host) {
			n[a] = host
		}
	}
	return n
}

// Of returns the name of the host or switch with address a, or a as text if there is none.
func (n Names) Of(a netip.Addr) string {
	if name, ok := n[a.Unmap()]; ok {
		return name
	}
	return a.String()
}

// Addresses returns the addresses of a host: IPv4, IPv6, and the link-local address that is derived
// from its MAC address. host is the host's name or one of its addresses. Addresses returns nil if
// there is no such host.
func (r *Rack) Addresses(host string) []netip.Addr {
	for i := range r.Hosts {
		h := &r.Hosts[i]
		addrs := []netip.Addr{h.IPv4, h.IPv6, verbs.LinkLocalGID(h.MAC).Addr()}
		if h.Name == host {
			return addrs
		}
		for _, a := range addrs {
			if strings.EqualFold(a.String(), host) {
				return addrs
			}
		}
	}
	return nil
}
