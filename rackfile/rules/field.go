package rules

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rdmalab/rdmalab/units"
)

// Field is one key of a rule, with its text form.
type Field struct {
	Key string
	// Example is an example of a value. Doc is one line for tables.
	Example, Doc string
	// Set reads a value from text. Get formats the value; it returns "" for the default, which is
	// not printed.
	Set func(r *Rule, text string) error
	Get func(r *Rule) string
}

// Fields lists the keys of a rule in the order in which they are printed.
func Fields() []Field {
	list := slices.Clone(fields)
	list[index("action")].Doc = actionDoc() + ". Required"
	return list
}

// Words for "nothing" (none), "any key" (anyKey) and "everything" (all).
const (
	none   = "none"
	anyKey = "any"
	all    = "all"
)

var fields = []Field{
	{
		"id", "locks", "name of the rule, 1 to 32 characters a-z, 0-9 and -; default: r1, r2 and so on",
		func(r *Rule, s string) error { r.ID = s; return checkID(s) },
		func(r *Rule) string { return r.ID },
	},
	{
		"server", "ms0", "memory server: the rule selects requests that are sent to it; a host's name or an address; with action lookup the host that sends the packets, with action cache the key-value server, with action " +
			"buffer the host whose port is limited. Required",
		(*Rule).setServer,
		func(r *Rule) string { return cmp.Or(r.Host, r.Server.String()) },
	},
	{
		"action", "atomics", "", // Fields sets the help text
		func(r *Rule, s string) error { return r.Action.UnmarshalText([]byte(s)) },
		func(r *Rule) string { return r.Action.String() },
	},
	{
		"mode", "hardened", "published (as in the paper on SwordBox or, for the actions lookup and buffer and the key 'store', in the paper on external memory) or hardened (without the paper's holes, which are ways in which its design loses data, hangs or is slow); default: hardened",
		func(r *Rule, s string) error { return r.Mode.UnmarshalText([]byte(s)) },
		func(r *Rule) string { return unless(r.Mode == Hardened, r.Mode.String()) },
	},
	{
		"range", "0x1000-0x2000", "only requests that touch this range of virtual addresses, as they are in packets (`rdmalab switch hot` shows them), also if they begin before it; the last address is excluded; with action atomics, both addresses are multiples of 8; not with actions lookup and buffer; default: all",
		(*Rule).setRange,
		func(r *Rule) string {
			return unless(r.From == 0 && r.To == 0, fmt.Sprintf("%#x-%#x", r.From, r.To))
		},
	},
	{
		"rkey", "0x1234", "only requests with this R_Key (the key of one memory region); not with actions lookup and buffer; default: any",
		func(r *Rule, s string) error {
			return setNumber(s, anyKey, 1<<32-1, func(n uint64) { r.RKey = uint32(n) })
		},
		func(r *Rule) string { return unless(r.RKey == 0, fmt.Sprintf("%#x", r.RKey)) },
	},
	number("shards", "2", "with actions move and atomics: number of shared connections to the server, 1 to 64; which of them carries a request depends on its address, but with action move in mode hardened on the client's connection; with the key 'store': number of connections to each server that has counters; default: 1",
		MaxShards, func(r *Rule) *int { return &r.Shards }),
	{
		"service", "memory", "the switch makes its connections to this service, a name or a port: of the rule's server or, with actions lookup and buffer and the key 'store', " +
			"of the servers in table, ring and store. With service=none the switch makes no connections, and `rdmalab switch connections adopt` gives it some; service=none is refused with actions lookup and buffer and the key 'store'; default: memory",
		func(r *Rule, s string) error {
			if r.Service = s; s == none {
				r.Service = ""
			}
			return checkService(r.Service)
		},
		func(r *Rule) string {
			switch {
			case r.Service == "" && r.Dials():
				return none
			case r.Service == DefaultService && r.Dials():
				return ""
			}
			return r.Service
		},
	},
	number("depth", "16", "how many READs and atomics may be in flight on a connection of the switch, 1 to 128; default: 16",
		MaxDepth, func(r *Rule) *int { return &r.MaxRdAtomic }),
	{
		"mtu", "1024", "largest path MTU of the switch's connections: 256, 512, 1024, 2048 or 4096 bytes; the link and the server may allow less; default: 4096",
		func(r *Rule, s string) error {
			n, err := strconv.Atoi(s)
			if err != nil || !slices.Contains(mtus, n) {
				return fmt.Errorf("%.40q is no path MTU; use one of %v", s, mtus)
			}
			r.MTU = n
			return nil
		},
		func(r *Rule) string { return unless(r.MTU == 0, strconv.Itoa(r.MTU)) },
	},
	{
		"misses", "wait", "with action atomics, mode hardened: what answers a CMP_SWAP if the switch knows that it will fail: server, switch, or wait[:TIME]. With wait the switch " +
			"holds the CMP_SWAP until the word has the value that the CMP_SWAP compares with. If the word does not get this value within TIME (at most 1s; 1ms if not given), or before the client's NIC sends the CMP_SWAP again, the switch answers; default: server",
		(*Rule).setMisses,
		func(r *Rule) string {
			if r.MissTime != 0 {
				return r.Misses.String() + ":" + r.MissTime.String()
			}
			return unless(r.Misses == AnswerServer, r.Misses.String())
		},
	},
	slowField,
	{
		"steer", "write", "with action steer: which requests are steered: READs (read), appends (write) or both; default: both",
		func(r *Rule, s string) error { return r.Steer.UnmarshalText([]byte(s)) },
		func(r *Rule) string { return unless(r.Steer == SteerBoth, r.Steer.String()) },
	},
	{
		"keys", "1,7", "with action steer: keys of Clover whose requests are steered, at most 256, whose list in decimal has at most 512 characters with the commas, or hot:N for the N keys that clients " +
			"request most, N at most 256, only in mode hardened; default: all",
		(*Rule).setKeys,
		func(r *Rule) string {
			if r.Hot > 0 {
				return hotKeys + strconv.Itoa(r.Hot)
			}
			return joinKeys(r.Keys)
		},
	},
	number("registers", "1024", "with action steer, mode published: number of registers, each for the newest node of a key, 1 to 16384; keys whose numbers are equal "+
		"modulo this number share a register; default: 256, as in the authors' P4 program", MaxRegisters, func(r *Rule) *int { return &r.Registers }),
}

// hotKeys begins a value of the rule's key "keys" with which the switch itself finds the most
// requested keys.
const hotKeys = "hot:"

// setMisses reads the value of the rule's key "misses": what answers a CAS that the switch knows to
// fail (Answerer) and, with wait:TIME, for how long such a CAS waits before the switch answers it.
func (r *Rule) setMisses(s string) error {
	how, wait, timed := strings.Cut(s, ":")
	r.MissTime = 0
	if err := r.Misses.UnmarshalText([]byte(how)); err != nil || !timed {
		return err
	}
	d, err := time.ParseDuration(wait)
	if err != nil || d <= 0 || d > MaxMissTime || r.Misses != AnswerWait {
		return fmt.Errorf("%.40q is no time to wait; write it like wait:5ms, at most %v", s, MaxMissTime)
	}
	r.MissTime = d
	return nil
}

// setKeys reads the value of the rule's key "keys": numbers separated by commas, hot:N, or all.
func (r *Rule) setKeys(s string) error {
	if r.Keys, r.Hot = nil, 0; s == all {
		return nil
	}
	if n, ok := strings.CutPrefix(s, hotKeys); ok {
		return setNumber(n, "", MaxHot, func(n uint64) { r.Hot = int(n) })
	}
	for _, w := range strings.Split(s, ",") {
		k, err := strconv.ParseUint(w, 0, 64)
		if err != nil {
			return fmt.Errorf("%.40q is no key; write numbers between commas, or %s", w, all)
		}
		r.Keys = append(r.Keys, k)
	}
	return nil
}

func joinKeys(keys []uint64) string {
	words := make([]string, len(keys))
	for i, k := range keys {
		words[i] = strconv.FormatUint(k, 10)
	}
	return strings.Join(words, ",")
}

// Dials reports whether the switch makes connections for the rule.
func (r *Rule) Dials() bool {
	d := r.Action.Definition()
	return d.Dials != nil && d.Dials(r)
}

func unless(not bool, s string) string {
	if not {
		return ""
	}
	return s
}

func (r *Rule) setServer(s string) error {
	r.Host, r.Server = "", netip.Addr{}
	if a, err := netip.ParseAddr(s); err == nil {
		if a.Zone() != "" {
			return fmt.Errorf("%.60q has a zone; write the address alone", s)
		}
		r.Server = a.Unmap()
		return nil
	}
	if !units.IsName(s) {
		return fmt.Errorf("%.60q is neither a host's name nor an address", s)
	}
	r.Host = s
	return nil
}

func (r *Rule) setRange(s string) error {
	if s == all {
		r.From, r.To = 0, 0
		return nil
	}
	bad := fmt.Errorf("%.60q is no range; write it like 0x1000-0x2000, the last address excluded, or all", s)
	from, to, _ := strings.Cut(s, "-")
	var err1, err2 error
	r.From, err1 = strconv.ParseUint(from, 0, 64)
	r.To, err2 = strconv.ParseUint(to, 0, 64)
	if err1 != nil || err2 != nil {
		return bad
	}
	if r.From >= r.To {
		return fmt.Errorf("%s is empty; write the lower address first", s)
	}
	return nil
}

// number returns the field of a key whose value is a number from 1 to high. The function `field`
// returns the place of the number in a rule. If the rule's text has no such key, the number is 0.
func number(key, example, doc string, high uint64, field func(r *Rule) *int) Field {
	return Field{
		key, example, doc,
		func(r *Rule, s string) error {
			return setNumber(s, "", high, func(n uint64) { *field(r) = int(n) })
		},
		func(r *Rule) string { return unless(*field(r) == 0, strconv.Itoa(*field(r))) },
	}
}

// setNumber reads a number from 1 to high, or the word in the parameter nothing, which stands for
// 0. If that is "", no word stands for 0.
func setNumber(s, nothing string, high uint64, set func(uint64)) error {
	if nothing != "" && s == nothing {
		set(0)
		return nil
	}
	n, err := strconv.ParseUint(s, 0, 64)
	if err != nil || n < 1 || n > high {
		return fmt.Errorf("%.40q is no number from 1 to %d", s, high)
	}
	set(n)
	return nil
}
