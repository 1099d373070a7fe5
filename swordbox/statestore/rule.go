package statestore

import (
	"cmp"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// Bounds of rules with the key 'store'.
const (
	// MaxSlots is how many counters a rule can have.
	MaxSlots     = 1 << 30
	defaultSlots = 1024
	// MaxRows is how many rows a count-min sketch can have.
	MaxRows = 8
	// MaxCombine is the largest value of the key combine.
	MaxCombine = 10 * time.Millisecond
)

// Keys that are allowed only together with the key 'store'. Those that are exported are keys of action
// trace of package tracestore, too.
const (
	// KeyAt is the offset in the servers' memory. KeyCombine is how long amounts are added up, or records
	// wait for others, before they are sent.
	KeyAt      = "at"
	KeyCombine = "combine"

	keySlots = "slots"
	keyPer   = "per"
	keyAdd   = "add"
	keyRows  = "rows"
)

// Values of per and add; the first is the default. addPackets is the default of add with action
// measure.
var (
	pers = []string{"flow", "address"}
	adds = []string{"requests", "bytes", addPackets}
)

const addPackets = "packets"

// extendCount adds the keys of counters in servers' memory to the action count.
func extendCount() {
	rules.Extend(hotwords.Count, rules.Definition{
		Keys: []rules.Field{
			extmem.ServersKey(hotwords.KeyStore, "ms1", fmt.Sprintf("with action count: up to %d memory servers, separated by commas; the switch counts in their memory by FETCH_ADD "+
				"instead of in its own; see `rdmalab switch counted`", extmem.MaxServers)),
			rules.Option(KeyAt, "0x1000", "with the key 'store': offset of the first counter, or with action trace of the ring, in the region of the memory service of each server, a multiple of 8; default: 0", extmem.CheckOffset),
			rules.Option(keySlots, "4096", fmt.Sprintf("with the key 'store': number of counters of 8 bytes on all servers together, 1 to %d; with the key 'rows', in each row, and at most %[1]d in all rows; in mode published 1; default: %[2]d", MaxSlots, defaultSlots),
				extmem.Between(1, MaxSlots)),
			rules.Option(keyRows, "4", fmt.Sprintf("with the key 'store': rows of a count-min sketch, 2 to %d, each with as many counters as the key 'slots' says: a request adds to one counter of each row, "+
				"and the smallest of these counters is an upper bound of the count of a flow or address; only in mode hardened; default: 1, no sketch, with action measure %d", MaxRows, defaultRows), extmem.Between(1, MaxRows)),
			rules.Option(keyPer, "address", "with the key 'store': what has a counter: a flow (client, server and queue pair, by a hash), or an address "+
				"(the first unit of memory that the request names, counted from the start of the range; modulo slots or, with the key 'rows', by a hash); not in mode published; default: flow", extmem.OneOf(pers...)),
			rules.Option(keyAdd, "bytes", "with the key 'store': what a request adds: 1 (requests) or its length (bytes); default: requests; with action measure what a packet adds: packets or bytes; default: packets", extmem.OneOf(adds...)),
			rules.Option(KeyCombine, "100us", fmt.Sprintf("with the key 'store': how long the switch adds up what a counter is to get before a FETCH_ADD carries the sum, up to %v; only in mode hardened; "+
				"default: 0, only while as many FETCH_ADDs are in flight as the key depth allows. With action trace: how long a record waits for others at most; default: 100us", MaxCombine), checkCombine),
		},
		Hosts: []string{hotwords.KeyStore}, Shares: extmem.LimitKeys,
		Dials: Selects, Check: check, Together: together, Memory: memoryOf,
	})
}

// Selects reports whether r, a rule of action count or measure, has a value for the key `store`.
func Selects(r *rules.Rule) bool { return r.Options[hotwords.KeyStore] != "" }

func check(r *rules.Rule) error {
	if !Selects(r) {
		for _, key := range []string{KeyAt, keySlots, keyRows, keyPer, keyAdd, KeyCombine, extmem.KeyCap, extmem.KeyDSCP} {
			if r.Options[key] != "" {
				return fmt.Errorf("%s has no meaning without %s", key, hotwords.KeyStore)
			}
		}
		return nil
	}
	if r.Options[keyAdd] == addPackets {
		return fmt.Errorf("%s=%s: use one of requests, bytes; action measure counts packets", keyAdd, addPackets)
	}
	if r.Service == "" {
		return errors.New("service none: the switch must connect to the server of the key store to learn where its memory is; name its service")
	}
	if err := cmp.Or(checkPublished(r), extmem.CheckLimits(r)); err != nil {
		return err
	}
	if l := LayoutOf(r); l.Cells > MaxSlots {
		return fmt.Errorf("%d %s of %d %s have more than %d counters", l.Rows, keyRows, l.Width(), keySlots, MaxSlots)
	}
	return nil
}

// checkPublished returns why a rule has no published form: the paper's program has one counter.
func checkPublished(r *rules.Rule) error {
	switch slots := r.Options[keySlots]; {
	case r.Mode != rules.Published:
	case LayoutOf(r).Rows > 1:
		return fmt.Errorf("%s: a sketch has no published form; leave mode out", keyRows)
	case slots != "" && slots != "1":
		return fmt.Errorf("%s=%s: a published rule has one counter; leave %[1]s or mode out", keySlots, slots)
	case r.Options[KeyCombine] != "":
		return fmt.Errorf("%s: a published rule adds up while its FETCH_ADDs are in flight, and not by time; leave %[1]s or mode out", KeyCombine)
	case r.Options[keyPer] != "":
		return fmt.Errorf("%s: a published rule has one counter for all requests; leave %[1]s or mode out", keyPer)
	}
	return nil
}

// together returns what is wrong with the rules of action count of one set. Rules that name the
// same memory server share its connections, and their counters must not overlap.
func together(list []*rules.Rule) error {
	return eachPair(list, overlap)
}

// eachPair returns what is wrong with a pair of rules: that they cannot share connections, or what
// overlapping returns for two rules r and s, with layouts a and b, whose counters overlap.
func eachPair(list []*rules.Rule, overlapping func(r, s *rules.Rule, a, b *Layout) error) error {
	for i, r := range list {
		a := LayoutOf(r)
		for _, s := range list[:i] {
			b := LayoutOf(s)
			if err := besides(r, s, &a, &b); err != nil {
				return err
			}
			if a.Overlaps(&b.Area) {
				if err := overlapping(r, s, &a, &b); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// besides returns why the rules r and s, whose layouts are a and b, cannot share the connections to
// the servers that they have in common.
func besides(r, s *rules.Rule, a, b *Layout) error {
	if a.Shares(&b.Area) && (r.Mode != s.Mode || r.Service != s.Service || r.Depth() != s.Depth() || r.NumShards() != s.NumShards() || r.MTU != s.MTU || CombineOf(r) != CombineOf(s) || extmem.LimitsOf(r, 0) != extmem.LimitsOf(s, 0)) {
		return fmt.Errorf("rules %s and %s count in the memory of the same server; mode, service, depth, shards, mtu, combine, cap and dscp must be the same in both", s.ID, r.ID)
	}
	return nil
}

func overlap(r, s *rules.Rule, a, b *Layout) error {
	return fmt.Errorf("rules %s and %s count in the memory of the same server and their counters overlap; give one of them %s=%#x", s.ID, r.ID, KeyAt, max(a.End(), b.End()))
}

func checkCombine(s string) error {
	if d, err := time.ParseDuration(s); err != nil || d < 0 || d > MaxCombine {
		return fmt.Errorf("%.40q is no time from 0 to %v, like 100us", s, MaxCombine)
	}
	return nil
}

// CombineOf returns the value of the key combine of a valid rule; 0 if it has none.
func CombineOf(r *rules.Rule) time.Duration {
	d, _ := time.ParseDuration(r.Options[KeyCombine]) // "" is 0
	return d
}

func memoryOf(r *rules.Rule) rules.Memory {
	l := LayoutOf(r)
	return l.Area.Memory(r.Service, KeyAt)
}

// wordLen is the size of a counter in bytes.
const wordLen = extmem.Align

// Layout says where the counters of a rule are.
type Layout struct {
	// Area is where the counters are in the memory of the servers.
	extmem.Area
	// Shards is the number of connections to each memory server.
	Shards int
	// Rows is how many counters count a request: 1, or the number of rows of a count-min sketch
	// (Cormode and Muthukrishnan, 2005). The rows follow one another in memory.
	Rows int

	// Bytes is true if the rule has add=bytes.
	Bytes   bool
	address bool // true if the rule has per=address
	// shift is log2 of the size in bytes of the rule's key unit (word, line or page). With
	// per=address, all addresses in a unit have the same counter.
	shift uint
	from  uint64 // the first address for which the rule counts
}

// LayoutOf returns the layout of a valid rule. Layout.Servers leaves out a memory server whose name
// is not resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	rows, slots := extmem.Number(r.Options[keyRows], rowsOf(r.Action)), extmem.Number(r.Options[keySlots], defaultSlots)
	if r.Mode == rules.Published {
		slots = 1
	}
	return Layout{
		Rows: rows,
		Area: extmem.Area{
			Servers: extmem.Servers(r.Options[hotwords.KeyStore]), Offset: extmem.Offset(r.Options[KeyAt]),
			Cells: rows * slots, Size: wordLen,
		},
		Shards: r.NumShards(), address: r.Options[keyPer] == pers[1], Bytes: r.Options[keyAdd] == adds[1],
		shift: hotwords.ShiftOf(r), from: r.From,
	}
}

// rowsOf returns how many rows a rule of an action has if it has no key rows.
func rowsOf(a rules.Action) int {
	if a == hotwords.Count {
		return 1
	}
	return defaultRows
}

// Width returns how many counters a row has.
func (l *Layout) Width() int { return l.Cells / l.Rows }

// Slot returns the number of the counter that counts a request in the given row.
func (l *Layout) Slot(server netip.Addr, t *handler.Target, row int) int {
	unit := (t.VA >> l.shift) - (l.from >> l.shift)
	switch {
	case l.Rows > 1 && l.address:
		return row*l.Width() + telemetry.Place(unit, row, l.Width())
	case l.Rows > 1:
		return row*l.Width() + telemetry.Place(flowHash(t.From, server, t.To), row, l.Width())
	case l.address:
		return int(unit) & (1<<62 - 1) % l.Cells
	}
	return FlowSlot(t.From, server, t.To, l.Cells)
}

// Amount returns how much a request adds to its counter.
func (l *Layout) Amount(t *handler.Target) uint64 {
	if l.Bytes {
		return uint64(t.Length)
	}
	return 1
}

// Place returns where a counter is: the index of its memory server, the connection (shard) that
// carries its FETCH_ADDs, and its offset in the server's memory in bytes. All FETCH_ADDs to a
// counter are on one connection.
func (l *Layout) Place(slot int) (store, shard int, offset uint64) {
	store, offset = l.Area.Place(uint64(slot))
	return store, slot / len(l.Servers) % l.Shards, offset
}

// FlowSlot returns the number of the counter for a flow, from 0 to slots-1. The flow consists of
// the requests from address `from` to queue pair `to` of the server.
func FlowSlot(from, server netip.Addr, to wire.QPN, slots int) int {
	return int(flowHash(from, server, to) % uint64(slots))
}

func flowHash(from, server netip.Addr, to wire.QPN) uint64 {
	const prime = 0x100000001b3 // FNV-1a
	h := uint64(0xcbf29ce484222325)
	for _, a := range [2][16]byte{from.As16(), server.As16()} {
		for _, x := range a {
			h = (h ^ uint64(x)) * prime
		}
	}
	h = (h ^ uint64(to)) * prime
	return h ^ h>>32
}
