package rackfile

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/goccy/go-yaml/ast"

	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/portqueue"
	"github.com/rdmalab/rdmalab/units"
)

// Defaults and bounds of the queues of ports.
const (
	defaultBuffer = 12 << 20
	minBuffer     = 64 << 10
	// ownShare is the share of the buffer that frames of the switch program have: one in ownShare.
	ownShare        = 8
	defaultReaction = 5 * time.Millisecond // of a machine that is busy
	nicLateness     = time.Millisecond
	maxReaction     = 100 * time.Millisecond
	defaultReserve  = 4096
	defaultDetect   = 200 * time.Millisecond
	minDetect       = time.Millisecond
	maxDetect       = time.Minute
	defaultAlphaDen = 8
	maxCodePoint    = 63
	ethernetHeader  = 18 // with a tag
	xonFrames       = 2  // DCQCN, section 3.2: RESUME two packets below
	hostBuffer      = 64 << 20
	// switchLateness bounds what a port of the switch makes up for when the switch's process did not run:
	// frames have waited in the links meanwhile, and would all be in its queues at once. A NIC makes up
	// for nicLateness alone, because what it sends at once needs headroom.
	switchLateness   = 50 * time.Millisecond
	queueWake        = 50 * time.Microsecond
	queueLinkDelay   = 50 * time.Microsecond // of an emulated link: the time until a process runs
	watchdogDrop     = "drop"
	watchdogForward  = "forward"
	markAtDequeue    = "dequeue"
	markAtEnqueue    = "enqueue"
	headroomAuto     = "auto"
	thresholdDynamic = "dynamic"
)

// queuesFile has what a file says about the queues of ports, before the defaults are known.
type queuesFile struct {
	at       ast.Node // of the key ports; nil if the key is missing
	needs    ast.Node // a key that needs ports; nil if there is none
	needsKey string
	cfg      portqueue.Config
	own      int64
	reaction time.Duration
	classes  [portqueue.Priorities]classFile
	ok       bool
}

type classFile struct {
	at, limitAt, xoffAt ast.Node
	fixed               int64 // headroom; -1: auto
	xon, reserve        int64 // -1: the default
}

// queueKeys returns the entries of section switch that describe the queues of its ports.
func (d *decoder) queueKeys(q *queuesFile) []entry {
	q.own, q.reaction, q.ok = -1, defaultReaction, true
	for i := range q.classes {
		q.classes[i] = classFile{fixed: -1, xon: -1, reserve: -1}
	}
	part := func(key string, read func(n ast.Node)) entry {
		return entry{key: key, set: func(n ast.Node) {
			if key == "ports" {
				q.at = n
			} else {
				q.needs, q.needsKey = n, key
			}
			q.ok = d.sound(func() { read(n) }) && q.ok
		}}
	}
	return []entry{
		part("ports", func(n ast.Node) {
			d.mapping(n, "ports", []entry{
				required(set(d, "rate", &q.cfg.Rate, parsePortRate)),
				set(d, "buffer", &q.cfg.Buffer, parseBuffer(minBuffer)),
				set(d, "own", &q.own, parseBuffer(0)),
				set(d, "reaction", &q.reaction, parseWithin(0, maxReaction)),
			})
		}),
		part("dscp", func(n ast.Node) {
			entries := make([]entry, maxCodePoint+1)
			for i := range entries {
				entries[i] = set(d, strconv.Itoa(i), &q.cfg.DSCP[i], parsePriority)
			}
			d.mapping(n, "dscp", entries)
		}),
		part("queues", func(n ast.Node) {
			entries := make([]entry, portqueue.Priorities)
			for i := range entries {
				entries[i] = entry{key: strconv.Itoa(i), set: func(n ast.Node) { d.class(n, &q.cfg.Classes[i], &q.classes[i]) }}
			}
			d.mapping(n, "queues", entries)
		}),
		part("watchdog", func(n ast.Node) {
			w := &q.cfg.Watchdog
			w.Detect, w.Restore = defaultDetect, defaultDetect
			action := watchdogDrop
			d.mapping(n, "watchdog", []entry{
				set(d, "detect", &w.Detect, parseWithin(minDetect, maxDetect)),
				set(d, "restore", &w.Restore, parseWithin(minDetect, maxDetect)),
				set(d, "action", &action, either(watchdogDrop, watchdogForward)),
			})
			w.Forward = action == watchdogForward
		}),
	}
}

// class reads the queue of a priority.
func (d *decoder) class(n ast.Node, c *portqueue.Class, f *classFile) {
	at := markAtDequeue
	f.at = n
	node := func(e entry, at *ast.Node) entry {
		read := e.set
		e.set = func(n ast.Node) { *at = n; read(n) }
		return e
	}
	c.AlphaNum, c.AlphaDen = 1, defaultAlphaDen
	ok := d.sound(func() {
		d.mapping(n, "a queue", []entry{
			set(d, "strict", &c.Strict, parseBool),
			set(d, "weight", &c.Weight, number(1, portqueue.MaxWeight)),
			set(d, "lossless", &c.Lossless, parseBool),
			d.section("ecn",
				required(set(d, "kmin", &c.ECN.KMin, parseMarkBytes)),
				required(set(d, "kmax", &c.ECN.KMax, parseMarkBytes)),
				required(set(d, "pmax", &c.ECN.PMax, parseMillionths)),
				set(d, "at", &at, either(markAtDequeue, markAtEnqueue))),
			node(set(d, "xoff", &c.XOFF, parseThreshold), &f.xoffAt),
			node(set(d, "limit", &c.XOFF, parseThreshold), &f.limitAt),
			{key: "alpha", set: func(n ast.Node) {
				if v, ok := text(d, n, "alpha", parseAlpha); ok {
					c.AlphaNum, c.AlphaDen = v[0], v[1]
				}
			}},
			set(d, "xon", &f.xon, parseBuffer(0)),
			set(d, "headroom", &f.fixed, parseHeadroom),
			set(d, "reserve", &f.reserve, parseBuffer(0)),
		})
	})
	c.ECN.AtEnqueue = at == markAtEnqueue
	switch {
	case !ok:
	case c.ECN.KMax < c.ECN.KMin:
		d.errorf(n, "ecn: kmin %d is above kmax %d; exchange them", c.ECN.KMin, c.ECN.KMax)
	case c.Strict && c.Weight > 0:
		d.errorf(n, "strict and weight exclude each other; remove one of them")
	case c.Lossless && f.limitAt != nil:
		d.errorf(f.limitAt, "limit is for lossy queues; a lossless one has xoff")
	case !c.Lossless && f.xoffAt != nil:
		d.errorf(f.xoffAt, "xoff needs lossless: true; a lossy queue has limit")
	case !c.Lossless && (f.xon >= 0 || f.fixed >= 0 || f.reserve >= 0):
		d.errorf(n, "xon, headroom and reserve need lossless: true")
	}
}

// queues completes the queues of the switch's ports, when hosts and links are known.
func (d *decoder) queues(f *file, r *Rack) {
	q := &f.queues
	if q.at == nil {
		if q.needs != nil {
			d.errorf(q.needs, "%s needs the key ports with a rate: without it the ports have one queue each, as fast as the machine", q.needsKey)
		}
		d.faultsOfQueues(f, nil)
		return
	}
	if !q.ok {
		return
	}
	c := q.cfg
	longest := r.LinkMTU
	for i := range r.Hosts {
		longest = max(longest, r.MTUOf(&r.Hosts[i]))
	}
	longest += ethernetHeader
	c.Overhead, c.Seed, c.MAC, c.Wake = portqueue.Overhead, r.Seed, r.Switch.MAC, queueWake
	c.Lateness = switchLateness
	for i := range c.Classes {
		k, file := &c.Classes[i], &q.classes[i]
		if file.at == nil || !k.Lossless {
			k.AlphaNum, k.AlphaDen = max(1, k.AlphaNum), max(1, k.AlphaDen)
			continue
		}
		if why := pauseless(r.Cable, r.Shared()); why != "" {
			d.errorf(file.at, "%s", why)
			return
		}
		if k.Headroom = file.fixed; k.Headroom < 0 {
			k.Headroom = portqueue.Headroom(c.Rate, queueLinkDelay, 2*q.reaction, longest)
		}
		if k.XON = file.xon; k.XON < 0 {
			k.XON = xonFrames * int64(longest)
		}
		if k.Reserve = file.reserve; k.Reserve < 0 {
			k.Reserve = defaultReserve
		}
	}
	kept := c.MinBuffer(len(r.Hosts)) // without the part of the switch program
	if c.Buffer == 0 {
		c.Buffer = min(max(defaultBuffer, 2*kept), portqueue.MaxBuffer)
	}
	if c.Own = q.own; c.Own < 0 {
		c.Own = c.Buffer / ownShare
	}
	if need := c.MinBuffer(len(r.Hosts)) + minBuffer; need > c.Buffer {
		d.errorf(q.at, "buffer: %s is too small: %d ports keep %s for headroom, reserves and the switch program; use at least %s, or less headroom", units.FormatSize(c.Buffer), len(r.Hosts), units.FormatSize(need-minBuffer), units.FormatSize(need))
		return
	}
	if err := c.Validate(); err != nil {
		d.errorf(q.at, "%v", err)
		return
	}
	r.Switch.Queues = &c
	if slices.ContainsFunc(c.Classes[:], func(k portqueue.Class) bool { return k.Lossless }) {
		for i := range r.Hosts {
			if h := &r.Hosts[i]; h.Rate > c.Rate {
				d.errorf(q.at, "host %s sends %s, and the ports take %s: a pause stops a faster NIC too late; take a lower rate for the host, or no lossless queue",
					h.Name, congestion.RateText(h.Rate), congestion.RateText(c.Rate))
				return
			}
		}
	}
	d.faultsOfQueues(f, &c)
}

// faultsOfQueues reports the faults that ports with the queues of cfg refuse; nil means that they have none.
func (d *decoder) faultsOfQueues(f *file, cfg *portqueue.Config) {
	for i := range f.faults {
		e := &f.faults[i]
		if err := QueuesRefuse(cfg, &e.rule); err != nil {
			d.errorf(e.at, "%v", err)
		}
	}
}

// QueuesRefuse returns why ports with the queues of cfg have no use for a fault that is valid by itself, or nil.
// A nil cfg means that the ports have no queues with a rate.
func QueuesRefuse(cfg *portqueue.Config, r *fault.Rule) error {
	switch {
	case r.Kind == fault.Rate && cfg != nil:
		return &fault.RuleError{Field: "kind", Reason: "rate would hide the queues of the switch behind a queue of its own; " +
			"the ports of this rack have a rate already: change switch.ports.rate, or leave ports out of the rack file"}
	case r.Kind == fault.Storm && cfg == nil:
		return &fault.RuleError{Field: "kind", Reason: "pause needs the key ports of the switch with a rate, and a lossless priority: " +
			"`switch: {ports: {rate: 1Gbit}, queues: {3: {lossless: true}}}` in the rack file"}
	case r.Kind == fault.Storm && !cfg.Classes[r.Priority&7].Lossless:
		return &fault.RuleError{Field: "kind", Reason: fmt.Sprintf("pause: priority %d is lossy, and takes no pauses; `lossless: true` in the rack file makes it lossless", r.Priority)}
	}
	return nil
}

// pauseless says why no link of a rack could carry pauses; "" means that all can.
func pauseless(cable string, shared bool) string {
	switch {
	case cable == CableMemory:
		return "lossless needs cable: veth, because a memory link drops packets when its ring is full"
	case shared:
		return "lossless needs daemons: separate, because packets of a shared process never wait in a NIC"
	}
	return ""
}

// PortQueues returns the egress queues of the switch's ports as the switch of a rack that is so many times slower than
// its clock runs them: a process needs its time to wake up by the clock of the machine. nil means that the ports
// have none.
func (s *Switch) PortQueues(slower int) *portqueue.Config {
	if s.Queues == nil {
		return nil
	}
	c := *s.Queues
	c.Wake /= time.Duration(slower)
	return &c
}

// NICQueue returns the egress queue of a host's NIC; false means that it has none, and sends as fast as
// the machine can. It has the priorities of the switch, and the host's rate or, if the rack has lossless
// queues, that of the switch's ports: a NIC that is faster than its link cannot be paused in time.
func (r *Rack) NICQueue(h *Host) (portqueue.Config, bool) {
	c := portqueue.Config{Overhead: portqueue.Overhead, Lateness: nicLateness, Wake: queueWake / time.Duration(r.Factor())}
	if q := r.Switch.Queues; q != nil {
		c.DSCP = q.DSCP
		for i := range q.Classes {
			k := &q.Classes[i]
			c.Classes[i] = portqueue.Class{Strict: k.Strict, Weight: k.Weight, Lossless: k.Lossless}
			if k.Lossless {
				c.Rate = q.Rate
			}
		}
	}
	if h.Rate > 0 {
		c.Rate = h.Rate
	}
	c.Seed, c.MAC, c.Buffer, c.Own = r.Seed, h.MAC, hostBuffer, hostBuffer
	return c, c.Rate > 0
}

func parsePortRate(s string) (int64, error) {
	v, err := units.ParseRate(s)
	if err == nil && (v < portqueue.MinRate || v > portqueue.MaxRate) {
		err = fmt.Errorf("%s is out of bounds; use a rate from 8kbit to 1Tbit", s)
	}
	return v, err
}

// parseBuffer returns a parser of sizes from low to the largest buffer.
func parseBuffer(low int64) func(s string) (int64, error) {
	return func(s string) (int64, error) {
		v, err := units.ParseSize(s)
		if err == nil && (v < low || v > portqueue.MaxBuffer) {
			err = fmt.Errorf("%s is out of bounds; use a size from %s to %s", s, units.FormatSize(low), units.FormatSize(portqueue.MaxBuffer))
		}
		return v, err
	}
}

func parseMarkBytes(s string) (int, error) {
	v, err := parseBuffer(0)(s)
	return int(v), err
}

func parseThreshold(s string) (int64, error) {
	if s == thresholdDynamic {
		return 0, nil
	}
	return parseBuffer(1)(s)
}

func parseHeadroom(s string) (int64, error) {
	if s == headroomAuto {
		return -1, nil
	}
	return parseBuffer(0)(s)
}

func parsePriority(s string) (uint8, error) {
	v, err := number(0, portqueue.Priorities-1)(s)
	return uint8(v), err
}

// parseMillionths reads a probability; 0 is allowed.
func parseMillionths(s string) (int, error) {
	if s == "0" || s == "0%" {
		return 0, nil
	}
	p, err := units.ParseProbability(s)
	return int(p*portqueue.Million + .5), err
}

// parseAlpha reads the factor of a dynamic threshold: 1/8, or 2.
func parseAlpha(s string) (v [2]int64, err error) {
	num, den, found := strings.Cut(s, "/")
	if !found {
		den = "1"
	}
	for i, part := range []string{num, den} {
		if v[i], err = strconv.ParseInt(strings.TrimSpace(part), 10, 64); err != nil || v[i] < 1 || v[i] > 1024 {
			return v, fmt.Errorf("%.40q is no factor; write it like 1/8 or 2", s)
		}
	}
	return v, nil
}

// parseWithin returns a parser of times from low to high.
func parseWithin(low, high time.Duration) func(s string) (time.Duration, error) {
	return func(s string) (time.Duration, error) {
		v, err := units.ParseDuration(s)
		if err == nil && (v < low || v > high) {
			err = fmt.Errorf("%s is out of bounds; use a time from %v to %v", s, low, high)
		}
		return v, err
	}
}
