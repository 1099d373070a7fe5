package statestore

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Bounds of rules with a store.
const (
	// MaxSlots is how many counters a rule can have. MaxStores is how many servers can share them.
	MaxSlots, MaxStores = 1 << 20, 8
	defaultSlots        = 1024
)

// Keys that only rules with a store have.
const (
	keyAt    = "at"
	keySlots = "slots"
	keyPer   = "per"
	keyAdd   = "add"
)

// Values of per and add; the first is the default.
var (
	pers = []string{"flow", "address"}
	adds = []string{"requests", "bytes"}
)

func init() {
	rules.Extend(hotwords.Count, rules.Definition{
		Keys: []rules.Field{
			storeKey(),
			rules.Option(keyAt, "0x1000", "with store: offset of the first counter in the region of the store's memory service, a multiple of 8; default: 0", checkAt),
			rules.Option(keySlots, "4096", fmt.Sprintf("with store: number of counters of 8 bytes, 1 to %d; default: %d", MaxSlots, defaultSlots),
				checkSlots),
			rules.Option(keyPer, "address", "with store: what has a counter: a flow (client, server and queue pair, by a hash), or an address "+
				"(the first unit of memory that the request names, modulo slots); default: flow", oneOf(pers)),
			rules.Option(keyAdd, "bytes", "with store: what a request adds: 1 (requests) or its length (bytes); default: requests", oneOf(adds)),
		},
		Hosts: []string{hotwords.KeyStore},
		Dials: Selects, Check: check, Together: together,
	})
}

// Selects reports whether a rule of action count has a store.
func Selects(r *rules.Rule) bool { return r.Options[hotwords.KeyStore] != "" }

// storeKey returns the field of the key store. It keeps each address in its canonical text, so that
// equal addresses are equal words; otherwise one store in two spellings would count as two.
func storeKey() rules.Field {
	f := rules.Option(hotwords.KeyStore, "ms1", fmt.Sprintf("with action count: up to %d memory servers, separated by commas; the switch counts in their memory by FETCH_ADD "+
		"instead of in its own; see `rdmalab switch counted`", MaxStores), checkStore)
	set := f.Set
	f.Set = func(r *rules.Rule, text string) error {
		words := strings.Split(text, ",")
		for i, w := range words {
			if a, err := netip.ParseAddr(w); err == nil {
				words[i] = a.String()
			}
		}
		return set(r, strings.Join(words, ","))
	}
	return f
}

func checkStore(s string) error {
	list := strings.Split(s, ",")
	if len(list) > MaxStores {
		return fmt.Errorf("%d servers; at most %d are allowed", len(list), MaxStores)
	}
	for i, w := range list {
		a, err := netip.ParseAddr(w)
		if err == nil && (a.Zone() != "" || a.Is4In6() || a.IsUnspecified() || a.IsMulticast()) {
			return fmt.Errorf("%.60q is no address of a machine", w)
		}
		if err != nil && (w == "" || len(w) > rules.MaxID || strings.Trim(w, "abcdefghijklmnopqrstuvwxyz0123456789-") != "") {
			return fmt.Errorf("%.60q is neither a host's name nor an address", w)
		}
		if slices.Contains(list[:i], w) {
			return fmt.Errorf("%.60q is there twice", w)
		}
	}
	return nil
}

func checkAt(s string) error {
	if n, err := strconv.ParseUint(s, 0, 48); err != nil || n%wordLen != 0 {
		return fmt.Errorf("%.40q is no offset; use a multiple of %d", s, wordLen)
	}
	return nil
}

func checkSlots(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > MaxSlots {
		return fmt.Errorf("%.40q is no number from 1 to %d", s, MaxSlots)
	}
	return nil
}

func oneOf(list []string) func(string) error {
	return func(s string) error {
		if !slices.Contains(list, s) {
			return fmt.Errorf("%.40q is unknown; use one of %v", s, list)
		}
		return nil
	}
}

// check returns what is wrong with one rule of action count.
func check(r *rules.Rule) error {
	if !Selects(r) {
		for _, key := range []string{keyAt, keySlots, keyPer, keyAdd} {
			if r.Options[key] != "" {
				return fmt.Errorf("%s has no meaning without %s", key, hotwords.KeyStore)
			}
		}
		return nil
	}
	if r.Service == "" {
		return errors.New("service none: the switch must connect to the store to learn where its memory is; name its service")
	}
	return nil
}

// together returns what is wrong with the rules of action count of one set. Rules with the same
// store share its connections, and their counters must not overlap.
func together(list []*rules.Rule) error {
	for i, r := range list {
		for _, s := range list[:i] {
			if !Selects(r) || !Selects(s) || !shareStore(r, s) {
				continue
			}
			if r.Mode != s.Mode || r.Service != s.Service || r.Depth() != s.Depth() || r.NumShards() != s.NumShards() || r.MTU != s.MTU {
				return fmt.Errorf("rules %s and %s count in the same store; mode, service, depth, shards and mtu must be the same in both", s.ID, r.ID)
			}
			a, b := LayoutOf(r), LayoutOf(s)
			if a.At < b.End() && b.At < a.End() {
				return fmt.Errorf("rules %s and %s count in the same store and their counters overlap; give one of them %s=%#x", s.ID, r.ID, keyAt, max(a.End(), b.End()))
			}
		}
	}
	return nil
}

func shareStore(r, s *rules.Rule) bool {
	list := strings.Split(s.Options[hotwords.KeyStore], ",")
	return slices.ContainsFunc(strings.Split(r.Options[hotwords.KeyStore], ","), func(w string) bool { return slices.Contains(list, w) })
}

// wordLen is the size of a counter in bytes.
const wordLen = 8

// Layout says where the counters of a rule are.
type Layout struct {
	// Stores are the addresses of the servers. Shards is the number of connections to each.
	Stores []netip.Addr
	Shards int
	// At is the offset of the first counter in each server's memory, in bytes. Slots is the number of
	// counters on all servers together.
	At    uint64
	Slots int

	address, bytes bool
	shift          uint
	from           uint64
}

// LayoutOf returns the layout of a valid rule. Stores lacks a store whose name is not resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	l := Layout{
		Shards: r.NumShards(), Slots: defaultSlots, address: r.Options[keyPer] == pers[1], bytes: r.Options[keyAdd] == adds[1],
		shift: hotwords.ShiftOf(r), from: r.From,
	}
	for _, w := range strings.Split(r.Options[hotwords.KeyStore], ",") {
		if a, err := netip.ParseAddr(w); err == nil {
			l.Stores = append(l.Stores, a.Unmap())
		}
	}
	if n, err := strconv.Atoi(r.Options[keySlots]); err == nil {
		l.Slots = n
	}
	l.At, _ = strconv.ParseUint(r.Options[keyAt], 0, 48) // "" is 0
	return l
}

// End returns the offset behind the last counter on a server, in bytes.
func (l *Layout) End() uint64 {
	n := max(1, len(l.Stores))
	return l.At + uint64((l.Slots+n-1)/n)*wordLen
}

// Slot returns the number of the counter that counts a request.
func (l *Layout) Slot(server netip.Addr, t *handler.Target) int {
	if l.address {
		return int((t.VA>>l.shift)-(l.from>>l.shift)) & (1<<62 - 1) % l.Slots
	}
	return FlowSlot(t.From, server, t.To, l.Slots)
}

// Amount returns how much a request adds to its counter.
func (l *Layout) Amount(t *handler.Target) uint64 {
	if l.bytes {
		return uint64(t.Length)
	}
	return 1
}

// Place returns where a counter is: the index of its store, the connection (shard) that carries its
// FETCH_ADDs, and its offset in the store's memory in bytes. All FETCH_ADDs to a counter are on one
// connection.
func (l *Layout) Place(slot int) (store, shard int, offset uint64) {
	n := len(l.Stores)
	word := slot / n
	return slot % n, word % l.Shards, l.At + uint64(word)*wordLen
}

// FlowSlot returns the number of the counter for a flow, from 0 to slots-1. The flow consists of
// the requests from address from to queue pair to of server.
func FlowSlot(from, server netip.Addr, to wire.QPN, slots int) int {
	const prime = 0x100000001b3 // FNV-1a
	h := uint64(0xcbf29ce484222325)
	a, b := from.As16(), server.As16()
	for _, x := range a {
		h = (h ^ uint64(x)) * prime
	}
	for _, x := range b {
		h = (h ^ uint64(x)) * prime
	}
	h = (h ^ uint64(to)) * prime
	return int((h ^ h>>32) % uint64(slots))
}
