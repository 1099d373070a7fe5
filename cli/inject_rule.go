package cli

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/softrnic/fault"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/units"
)

// kindDrop is the kind of a rule that always loses the frames that it selects. It is used with
// flags that select exact packets.
const kindDrop = "drop"

// injectKinds lists the first arguments of inject, in the order of its help; the registered kinds are
// last.
func injectKinds() []string {
	list := []string{
		string(fault.Loss), kindDrop, string(fault.Duplicate), string(fault.Delay), string(fault.Reorder),
		string(fault.Corrupt), string(fault.Rate), string(fault.Blackhole), string(fault.Mark), string(fault.Storm), string(fault.Tear),
	}
	for _, e := range fault.Effects() {
		list = append(list, string(e.Kind))
	}
	return list
}

// ownKinds are the lines of help for the registered kinds; "" if there are none.
func ownKinds() string {
	return listedAll(16, fault.Effects(), func(e fault.Effect) (string, string) { return string(e.Kind), e.Doc })
}

type ruleFlags struct {
	links                  []string
	host, dir              string
	probability            string
	delay, jitter, lasting time.Duration
	opcodes                []string
	class, qpn, psn        string
	psnOffset              int
	transmission, next     int
	samePacket, once       bool
	replace                bool
	seed                   uint64
	id                     string

	set func(name string) bool // reports whether a flag was typed
}

func (f *ruleFlags) define(fs *pflag.FlagSet) {
	fs.StringSliceVar(&f.links, "link", nil, "host on whose link the fault is; several with commas, cn[0-3], or all (required, except with tear)")
	fs.StringVar(&f.host, "host", "", "with tear: the host in whose memory copies are torn (required)")
	fs.StringVar(&f.dir, "dir", "both", "direction, not with tear: up (from the host to the switch), down (from the switch to the host) or both")
	fs.StringVar(&f.probability, "probability", "", "share of the selected frames (with tear: of copies) that are hit, 10% or 0.1 (default: all); the same as AMOUNT of loss, drop, duplicate, reorder, corrupt, ecn and tear; not with rate, blackhole and pause")
	fs.DurationVar(&f.delay, "delay", 0, "with delay: the same as AMOUNT; with reorder: how long a frame is delayed (default 1ms); with tear: the "+
		"longest pause inside a copy (default 20us); at most 1m")
	fs.DurationVar(&f.jitter, "jitter", 0, "with delay: each delay is longer or shorter by up to this time, at random, at most 1m (default 0s)")
	fs.StringSliceVar(&f.opcodes, "opcode", nil, "only packets of these opcodes, like RC_WRITE_LAST or RC_WRITE_* (repeatable)")
	fs.StringVar(&f.class, "class", "", "only packets of one class: "+strings.Join(fault.Classes(), ", ")+". roce means all RoCEv2 packets, onerma all 1RMA messages, onerma_read and so on one kind of them, rnr RNR NAKs, cnp congestion notifications")
	fs.StringVar(&f.qpn, "qpn", "", "only packets to this queue pair, decimal or 0x…")
	fs.StringVar(&f.psn, "psn", "", "only packets with this packet sequence number, decimal or 0x…")
	fs.IntVar(&f.psnOffset, "psn-offset", 0, "only packets whose PSN is this much above the first PSN that the "+
		"link has carried to the same queue pair in this direction; not with --psn")
	fs.IntVar(&f.transmission, "transmission", 0, "only the n-th transmission of each packet, from 1; those before the rule was made, and those that an earlier rule has dropped, do not count")
	fs.BoolVar(&f.samePacket, "same-packet", false, "after the first hit, hit only retransmissions of that packet")
	fs.BoolVar(&f.once, "once", false, "end after one hit, in each direction")
	fs.IntVar(&f.next, "next", 0, "end after this many hits, in each direction (default: no limit); not with --once")
	fs.DurationVar(&f.lasting, "for", 0, "end after this time, like 10s (default: until rdmalab heal)")
	fs.BoolVar(&f.replace, "replace", false, "end the rule named by --id or, without --id, the rules of this kind on the same link and direction, and take their place and name")
	fs.Uint64Var(&f.seed, "seed", 0, "seed of the rule's random numbers (default: the rack's seed)")
	fs.StringVar(&f.id, "id", "", "name of the rule, only for one link, not with tear (default f1, f2 and so on; with tear always tear-HOST)")
	f.set = fs.Changed
}

// rule makes a rule from the arguments and flags, without its link.
func (f *ruleFlags) rule(kind, amount string) (fault.Rule, error) {
	r := fault.Rule{
		ID: f.id, Kind: fault.Kind(kind), Dir: fault.Dir(f.dir), Delay: f.delay, Jitter: f.jitter,
		For: f.lasting, Seed: f.seed, Count: f.next,
	}
	if to := map[string]string{"rx": "down", "ingress": "down", "in": "down", "tx": "up", "egress": "up", "out": "up"}[f.dir]; to != "" {
		return r, fmt.Errorf("--dir %s: write --dir %s for what the host %s", f.dir, to, either(to == "up", "sends", "receives"))
	}
	switch {
	case f.once && f.set("next"):
		return r, errors.New("--once and --next contradict each other")
	case f.set("next") && f.next < 1:
		return r, fmt.Errorf("--next %d: it must be 1 or more", f.next)
	case f.once:
		r.Count = 1
	}
	if strings.HasPrefix(f.id, tearPrefix) || f.id != "" && r.Kind == fault.Tear {
		return r, fmt.Errorf("--id %s: a rule of kind tear has the name %sHOST, and no other rule may have such a name", f.id, tearPrefix)
	}
	if f.set("for") && f.lasting <= 0 {
		return r, fmt.Errorf("--for %v: use a time above 0, like 10s", f.lasting)
	}
	if err := f.match(&r.Match); err != nil {
		return r, err
	}
	if f.set("probability") {
		p, err := units.ParseProbability(f.probability)
		if err != nil {
			return r, fmt.Errorf("--probability: %w", err)
		}
		r.Probability = p
	}
	return r, f.amount(&r, kind, amount)
}

// amount parses the second argument. Depending on the kind, this is a probability, a delay or a
// rate; some kinds have none.
func (f *ruleFlags) amount(r *fault.Rule, kind, amount string) (err error) {
	exact := r.Count > 0 || len(r.Match.Opcodes) > 0 || r.Match.Class != "" || r.Match.QPN != nil || r.Match.PSN != nil ||
		r.Match.PSNOffset != nil || r.Match.Transmission != 0
	switch r.Kind {
	case kindDrop:
		r.Kind = fault.Loss
		if !exact && amount == "" {
			return errors.New("drop which packets? Say --opcode, --class, --psn-offset, --once …, or `inject blackhole` for all")
		}
		return f.share(r, kind, amount)
	case fault.Loss, fault.Duplicate, fault.Reorder, fault.Corrupt, fault.Mark, fault.Tear:
		if amount == "" && r.Probability == 0 && !exact {
			return fmt.Errorf("%s of how many? For example `inject %s 10%%`", kind, kind)
		}
		return f.share(r, kind, amount)
	case fault.Delay:
		switch {
		case amount == "" && r.Delay == 0 && r.Jitter == 0:
			return errors.New("delay of how long? For example `inject delay 1ms`")
		case amount != "" && f.set("delay"):
			return errors.New("the delay is given twice")
		case amount != "":
			r.Delay, err = units.ParseDuration(amount)
		}
		return err
	case fault.Rate:
		if amount == "" {
			return errors.New("rate of how much? For example `inject rate 1Gbit`")
		}
		r.BitsPerSecond, err = units.ParseRate(amount)
		return err
	case fault.Storm:
		if amount == "" {
			return errors.New("pause of which priority? For example `inject pause 3`")
		}
		if r.Priority, err = strconv.Atoi(amount); err != nil {
			err = fmt.Errorf("pause: %.40q is no priority; use 0 to 7", amount)
		}
		return err
	case fault.Blackhole:
		if amount != "" {
			return fmt.Errorf("blackhole takes no amount: %q; it loses every frame", amount)
		}
		return nil
	}
	if slices.Contains(injectKinds(), kind) { // a registered one
		return f.share(r, kind, amount)
	}
	return fmt.Errorf("fault %.40q is unknown; %sthere are %s", kind, nearest.Meant(kind, injectKinds(), fault.OtherWords), strings.Join(injectKinds(), ", "))
}

func (f *ruleFlags) share(r *fault.Rule, kind, amount string) error {
	if amount == "" {
		return nil
	}
	if f.set("probability") {
		return errors.New("the probability is given twice")
	}
	p, err := units.ParseProbability(amount)
	if err != nil {
		return fmt.Errorf("%s: %w", kind, err)
	}
	r.Probability = p
	return nil
}

func (f *ruleFlags) match(m *fault.Match) error {
	m.Class, m.Transmission, m.SamePacket = f.class, f.transmission, f.samePacket
	for _, s := range f.opcodes {
		ops, err := opcodesLike(s)
		if err != nil {
			return fmt.Errorf("--opcode: %w", err)
		}
		m.Opcodes = append(m.Opcodes, ops...)
	}
	var err error
	if m.QPN, err = given24[wire.QPN]("--qpn", f.qpn); err != nil {
		return err
	}
	if m.PSN, err = given24[wire.PSN]("--psn", f.psn); err != nil {
		return err
	}
	if f.set("psn-offset") {
		m.PSNOffset = &f.psnOffset
	}
	if f.set("transmission") && f.transmission < 1 {
		return errors.New("--transmission " + strconv.Itoa(f.transmission) + ": the first is 1")
	}
	return nil
}

// opcodePatterns returns patterns like RC_WRITE_* for all opcodes whose names begin alike.
func opcodePatterns() (list []string) {
	for code := range 1 << 8 {
		name := wire.Opcode(code).String()
		if i := strings.LastIndexByte(name, '_'); wire.Opcode(code).Known() && i > 0 && !slices.Contains(list, name[:i]+"_*") {
			list = append(list, name[:i]+"_*")
		}
	}
	return list
}

// opcodesLike returns the opcodes that match a pattern such as RC_WRITE_*, or a name such as
// RC_WRITE_LAST, in the order of their codes. Upper and lower case are equal. It returns an error
// if no opcode matches.
func opcodesLike(pattern string) ([]wire.Opcode, error) {
	upper := strings.ToUpper(pattern)
	if !strings.ContainsAny(upper, "*?[") {
		var op wire.Opcode
		err := op.UnmarshalText([]byte(upper))
		// Other tools name opcodes without the service, or with that of reliable connections in words.
		if like := "RC_" + strings.TrimPrefix(upper, "RDMA_"); err != nil && new(wire.Opcode).UnmarshalText([]byte(like)) == nil {
			return nil, fmt.Errorf("%q is no opcode; write %s", pattern, like)
		}
		if some, noErr := opcodesLike(`RC_` + upper + `_*`); err != nil && noErr == nil && len(some) > 0 {
			err = fmt.Errorf("%q is no opcode; write 'RC_%s_*' for all of them", pattern, upper)
		}
		return []wire.Opcode{op}, err
	}
	var ops []wire.Opcode
	for code := range 1 << 8 {
		op := wire.Opcode(code)
		if !op.Known() {
			continue
		}
		switch ok, err := path.Match(upper, op.String()); {
		case err != nil:
			return nil, fmt.Errorf("%q is no pattern: %w", pattern, err)
		case ok:
			ops = append(ops, op)
		}
	}
	if len(ops) == 0 {
		return nil, fmt.Errorf("no opcode matches %.60q; %sthey are called like RC_WRITE_LAST", pattern, nearest.Meant(upper, opcodePatterns()))
	}
	return ops, nil
}
