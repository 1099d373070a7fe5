package rackfile

import (
	"errors"
	"fmt"
	"math"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/units"
)

// Bounds and defaults of a rack file.
const (
	// maxFile bounds the size of a rack file in bytes.
	maxFile = 64 << 10
	// maxNesting bounds how deep brackets of the file may be nested.
	maxNesting = 32
	// DefaultName is the name of a rack whose file has no key name.
	DefaultName = "default"
	// MaxHosts bounds the number of hosts of a rack on machines.
	MaxHosts = 256
	// maxFaults bounds the number of faults in one rack file.
	maxFaults = 256

	minMTU, maxMTU, defaultMTU = 1280, 9216, 4200
	maxQueue, defaultQueue     = 65536, 1024
	maxWindow                  = 1 << 14
	maxAcks                    = 64
	maxSpin, defaultSpin       = time.Second, 50 * time.Microsecond
	maxCPU                     = 1023
	pageSize                   = 4096
	maxMemory                  = 64 << 30
	defaultMemory              = 64 << 20
	defaultMetadataMemory      = 16 << 20
	defaultSeed                = 1
	defaultProgram             = ProgramForward
)

// file is a rack file whose syntax was checked. Its Rack has no hosts, rules, faults and addresses
// yet: resolve adds them, from the entries in the fields rules, hosts and faults.
type file struct {
	Rack
	rules  []ruleEntry
	hosts  []hostEntry
	faults []faultEntry
	// devices are those of the key devices.
	devices []deviceEntry

	node     ast.Node // the whole file
	sharedAt ast.Node // value of the key daemons
	// subnetsAt are the values of the keys subnet and subnet6; nil if a key is missing.
	subnetsAt [2]ast.Node
	queues    queuesFile
	mtu       mtuKeys
	further   map[string][]Host   // of each host, by its name, the NICs behind the first, without addresses
	nicsAt    map[string]ast.Node // likewise the value of the key nics, if it has one
	slowAt    ast.Node            // values of the keys slow and cost, likewise
	costAt    ast.Node
	on        placement
	// nets, hosted and switched are true if no mistake was found in the subnets, in the hosts, and in
	// the switch's program. Parts of the file that depend on one of these are checked only then.
	nets, hosted, switched bool
}

// hostEntry is one element of the list hosts. It stands for all hosts of its pattern. Its Host has
// no name and addresses; if Memory is -1, the host gets the memory of its role.
type hostEntry struct {
	Host
	at, nameAt ast.Node
	names      []string
	nicsAt     ast.Node // the values of the keys nics and leaf; nil if the key is missing
	leafAt     ast.Node
	machineAt  ast.Node // likewise, and the value
	machine    string
	further    []Host // its NICs behind the first, likewise
}

type faultEntry struct {
	at, linkAt ast.Node
	sound      bool // no mistake was found in this fault
	rule       fault.Rule
}

// Parse is ParseFile for a rack file without a file name. Errors call it rack.yaml.
func Parse(data []byte) (*Rack, error) { return ParseFile("rack.yaml", data) }

// ParseFile reads, checks and resolves a rack file. The error is an Errors: every mistake has the
// name of the file, line and column.
func ParseFile(name string, data []byte) (*Rack, error) { return parseFor(onMachines, name, data) }

// ParseSim is ParseFile for a rack in virtual time, which may be larger than one on machines.
func ParseSim(name string, data []byte) (*Rack, error) { return parseFor(inSim, name, data) }

func parseFor(size bounds, name string, data []byte) (*Rack, error) {
	d := &decoder{file: name, size: size}
	root := d.syntax(data)
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	r := d.resolve(d.topLevel(root))
	if len(d.errs) > 0 {
		return nil, d.errs
	}
	return r, nil
}

// syntax parses data and returns its only document.
func (d *decoder) syntax(data []byte) ast.Node {
	if len(data) > maxFile {
		d.errorf(nil, "the file has %d bytes; at most %d are allowed", len(data), maxFile)
		return nil
	}
	if line, col := tooDeep(data); line > 0 {
		d.errs = append(d.errs, &Error{File: d.file, Line: line, Col: col, Msg: fmt.Sprintf("more than %d brackets are open here; close some", maxNesting)})
		return nil
	}
	f, err := parseYAML(data)
	if err != nil {
		e := &Error{File: d.file, Msg: err.Error()}
		var at yaml.Error
		if errors.As(err, &at) {
			e.Msg = at.GetMessage()
			switch {
			case strings.Contains(e.Msg, "'\t'"):
				e.Msg = "found a tab character; indent with spaces"
			case strings.Contains(e.Msg, "must be specified"):
				e.Msg += `; a name with brackets between braces is in quotes: {name: "ms[0-1]", role: memory}`
			}
			if t := at.GetToken(); t != nil && t.Position != nil {
				e.Line, e.Col = t.Position.Line, t.Position.Column
			}
		}
		d.errs = append(d.errs, e)
		return nil
	}
	var body ast.Node
	for _, doc := range f.Docs {
		if doc == nil || doc.Body == nil || doc.Body.Type() == ast.CommentType {
			continue
		}
		if body != nil {
			d.errorf(doc.Body, "a second document begins here; a rack file is one document")
			return nil
		}
		body = doc.Body
	}
	if body == nil {
		d.errs = append(d.errs, &Error{File: d.file, Line: 1, Col: 1, Msg: "the file is empty; it needs at least hosts"})
	}
	return body
}

// tooDeep returns the place at which more brackets are open than a rack file needs, or 0, 0 if
// there is none. With many brackets, the YAML library would need time and stack that grow with the
// square of their number. tooDeep also counts brackets in quoted texts, which does no harm.
func tooDeep(data []byte) (line, col int) {
	open, lines, begin := 0, 1, 0
	for i, c := range data {
		switch c {
		case '\n':
			lines, begin = lines+1, i+1
		case '[', '{':
			if open++; open > maxNesting {
				return lines, i - begin + 1
			}
		case ']', '}':
			open = max(0, open-1)
		}
	}
	return 0, 0
}

// parseYAML parses data. It turns a panic of the YAML library into an error, because rack files are
// untrusted input.
func parseYAML(data []byte) (f *ast.File, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("not readable as YAML (%v)", p)
		}
	}()
	return parser.ParseBytes(data, 0)
}

func (d *decoder) topLevel(n ast.Node) *file {
	f := &file{Rack: Rack{
		Name: DefaultName, Seed: defaultSeed, LinkMTU: defaultMTU,
		Subnet:  netip.MustParsePrefix("10.77.0.0/24"),
		Subnet6: netip.MustParsePrefix("fd00:77::/64"),
		Switch:  Switch{Program: defaultProgram, Queue: defaultQueue, Spin: defaultSpin, CPU: AutoCPU},
	}, node: n, nets: true, switched: true, further: make(map[string][]Host), nicsAt: make(map[string]ast.Node)}
	subnet := func(key string, dst *netip.Prefix, at *ast.Node, v4 bool) entry {
		return entry{key: key, set: func(n ast.Node) {
			*at = n
			var ok bool
			*dst, ok = text(d, n, key, func(s string) (netip.Prefix, error) { return parseSubnet(s, v4) })
			f.nets = f.nets && ok
		}}
	}
	d.mapping(n, "a rack file", []entry{
		set(d, "name", &f.Name, func(s string) (string, error) { return s, CheckName(s) }),
		set(d, "seed", &f.Seed, parseSeed),
		{key: "mtu", set: func(n ast.Node) {
			f.mtu.at = n
			set(d, "mtu", &f.LinkMTU, parseMTU).set(n)
		}},
		{key: "pathMtu", set: func(n ast.Node) {
			f.mtu.pathAt = n
			set(d, "pathMtu", &f.mtu.path, parsePathMTU).set(n)
		}},
		set(d, "connect", &f.Connect, either(ConnectCM, ConnectTCP)),
		set(d, "cable", &f.Cable, either(CableVeth, CableMemory)),
		{key: "daemons", set: func(n ast.Node) {
			f.sharedAt = n
			set(d, "daemons", &f.Daemons, either(DaemonsSeparate, DaemonsShared)).set(n)
		}},
		set(d, "priority", &f.Priority, either(PriorityNormal, PriorityRealtime)),
		set(d, "group", &f.Group, parseGroup),
		{key: "slow", set: func(n ast.Node) {
			f.slowAt = n
			set(d, "slow", &f.Slow, number(minSlow, maxSlow)).set(n)
		}},
		{key: "cost", set: func(n ast.Node) {
			f.costAt = n
			set(d, "cost", &f.Cost, func(s string) (string, error) { return s, checkName("cost", s, maxRackName) }).set(n)
		}},
		{key: "onerma", set: func(n ast.Node) { f.OneRMA = d.oneRMA(n) }},
		{key: "congestion", set: func(n ast.Node) { f.Congestion = d.congestion(n) }},
		subnet("subnet", &f.Subnet, &f.subnetsAt[0], true),
		subnet("subnet6", &f.Subnet6, &f.subnetsAt[1], false),
		{key: "switch", set: func(n ast.Node) { d.switchEntry(n, f) }},
		{key: "fabric", set: func(n ast.Node) { f.on.fabricAt, f.Fabric = n, d.fabric(n, f) }},
		{key: "machines", set: func(n ast.Node) {
			f.on.machinesAt = n
			list(d, "machines", &f.on.machines, maxMachines, d.machine).set(n)
		}},
		{key: "hosts", required: true, set: func(n ast.Node) {
			f.hosted = d.sound(func() {
				d.sequence(n, "hosts", func(n ast.Node) { f.hosts = append(f.hosts, d.hostEntry(n)) })
				if s, ok := n.(*ast.SequenceNode); ok && len(s.Values) == 0 {
					d.errorf(n, "hosts is empty; a rack needs at least one host")
				}
			})
		}},
		list(d, "devices", &f.devices, maxDevices, func(n ast.Node) (e deviceEntry) { e.read(d, n); return e }),
		list(d, "faults", &f.faults, maxFaults, d.faultEntry),
	})
	var err error
	if f.LinkMTU, err = f.mtu.linkMTU(f.LinkMTU); err != nil {
		d.errorf(f.mtu.pathAt, "pathMtu: %v", err)
	}
	if f.Shared() && f.Slow == 0 { // slowMotion refuses the two together
		if err := f.Share(); err != nil {
			d.errorf(f.sharedAt, "daemons: %v", err)
		}
	}
	return f
}

// parseSubnet reads a network in CIDR notation, of IPv4 or of IPv6.
func parseSubnet(s string, v4 bool) (netip.Prefix, error) {
	example := "fd00:77::/64"
	if v4 {
		example = "10.77.0.0/24"
	}
	p, err := netip.ParsePrefix(s)
	if err != nil || p.Addr().Is4() != v4 || p.Addr().Is4In6() {
		return p, fmt.Errorf("%.60q is no network; write it like %s", s, example)
	}
	if a := p.Addr(); a.IsMulticast() || a.IsLoopback() || a.IsUnspecified() || a.IsLinkLocalUnicast() {
		return p, fmt.Errorf("%s is not for hosts; use a private network like %s", s, example)
	}
	if p.Masked() != p {
		return p, fmt.Errorf("%s has host bits set; use %s", s, p.Masked())
	}
	return p, nil
}

func (d *decoder) switchEntry(n ast.Node, f *file) {
	sw := &f.Switch
	if program, ok := scalar(n); ok {
		d.errorf(n, "switch must be a mapping, but is %s; write switch: {program: %.40s}", kindOf(n), program)
		return
	}
	d.mapping(n, "switch", append([]entry{
		{key: "program", set: func(n ast.Node) {
			f.switched = d.sound(func() { set(d, "program", &sw.Program, word(Programs()...)).set(n) })
		}},
		set(d, "queue", &sw.Queue, number(1, maxQueue)),
		set(d, "spin", &sw.Spin, parseSpin),
		set(d, "cpu", &sw.CPU, parseCPU),
		list(d, "rules", &f.rules, rules.MaxRules, d.ruleEntry),
	}, d.queueKeys(&f.queues)...))
}

func (d *decoder) hostEntry(n ast.Node) hostEntry {
	h := hostEntry{at: n, nameAt: n, Host: Host{Memory: -1, Spin: defaultSpin, CPU: AutoCPU, GSO: true}}
	d.mapping(n, "a host", append([]entry{
		{key: "name", required: true, set: func(n ast.Node) {
			h.nameAt = n
			h.names, _ = text(d, n, "name", Expand)
		}},
		required(set(d, "role", &h.Role, word(Roles()...))),
		set(d, "memory", &h.Memory, parseMemory),
		set(d, "cpu", &h.CPU, parseCPU),
		{key: "nics", set: func(n ast.Node) { h.nicsAt = n }},
		{key: "leaf", set: func(n ast.Node) {
			h.leafAt = n
			set(d, "leaf", &h.Leaf, func(s string) (string, error) { return s, checkName("leaf", s, maxHostName) }).set(n)
		}},
		{key: "machine", set: func(n ast.Node) {
			h.machineAt = n
			set(d, "machine", &h.machine, func(s string) (string, error) { return s, checkName("machine", s, maxHostName) }).set(n)
		}},
	}, d.nicKeys(&h.Host)...))
	if h.nicsAt != nil { // read last, because the host's keys are the defaults of its NICs
		d.nics(h.nicsAt, &h)
	}
	return h
}

// parseTOS reads the byte that is called TOS in IPv4 and traffic class in IPv6.
func parseTOS(s string) (uint8, error) {
	v, err := number(0, 255)(s)
	return uint8(v), err
}

func parseOnOff(s string) (bool, error) {
	s, err := either("on", "off")(s)
	return s == "on", err
}

// either returns a function that reads one of two words.
func either(a, b string) func(string) (string, error) { return word(a, b) }

// parseGroup reads the name or the number of a group. It does not check whether the group exists:
// only the machine on which the rack comes up knows that.
func parseGroup(s string) (string, error) {
	if n, err := strconv.ParseUint(s, 10, 64); err == nil {
		if n == 0 || n >= math.MaxUint32 {
			return "", fmt.Errorf("%.40q is no number of a group; use one from 1 to %d, or a name", s, uint32(math.MaxUint32)-1)
		}
		return strconv.FormatUint(n, 10), nil
	}
	if !matches(groupPattern, s) {
		return "", fmt.Errorf("%.40q is no name of a group; write it as in /etc/group", s)
	}
	return s, nil
}

// groupPattern matches the names that Linux accepts for a group.
const groupPattern = `^[A-Za-z_][A-Za-z0-9._-]{0,30}[A-Za-z0-9._$-]?$`

func parseCPU(s string) (int, error) {
	switch s {
	case "auto":
		return AutoCPU, nil
	case "none":
		return NoCPU, nil
	}
	n, err := number(0, maxCPU)(s)
	if err != nil {
		err = fmt.Errorf("%w, auto or none", err)
	}
	return n, err
}

func parseMemory(s string) (int64, error) {
	n, err := units.ParseSize(s)
	switch {
	case err != nil:
		return 0, err
	case n > maxMemory:
		return 0, fmt.Errorf("%s is too much; use at most %s", s, units.FormatSize(maxMemory))
	case n%pageSize != 0:
		return 0, fmt.Errorf("%s is no multiple of %s", s, units.FormatSize(pageSize))
	}
	return n, nil
}
