package statestore

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Bounds of rules with a store.
const (
	// MaxSlots is how many counters a rule can have.
	MaxSlots     = 1 << 20
	defaultSlots = 1024
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
			extmem.ServersKey(hotwords.KeyStore, "ms1", fmt.Sprintf("with action count: up to %d memory servers, separated by commas; the switch counts in their memory by FETCH_ADD "+
				"instead of in its own; see `rdmalab switch counted`", extmem.MaxServers)),
			rules.Option(keyAt, "0x1000", "with store: offset of the first counter in the region of the store's memory service, a multiple of 8; default: 0", extmem.CheckOffset),
			rules.Option(keySlots, "4096", fmt.Sprintf("with store: number of counters of 8 bytes, 1 to %d; default: %d", MaxSlots, defaultSlots),
				extmem.Between(1, MaxSlots)),
			rules.Option(keyPer, "address", "with store: what has a counter: a flow (client, server and queue pair, by a hash), or an address "+
				"(the first unit of memory that the request names, modulo slots); default: flow", extmem.OneOf(pers...)),
			rules.Option(keyAdd, "bytes", "with store: what a request adds: 1 (requests) or its length (bytes); default: requests", extmem.OneOf(adds...)),
		},
		Hosts: []string{hotwords.KeyStore},
		Dials: Selects, Check: check, Together: together,
	})
}

// Selects reports whether a rule of action count has a store.
func Selects(r *rules.Rule) bool { return r.Options[hotwords.KeyStore] != "" }

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
		a := LayoutOf(r)
		for _, s := range list[:i] {
			b := LayoutOf(s)
			switch {
			case !a.Shares(&b.Area):
			case r.Mode != s.Mode || r.Service != s.Service || r.Depth() != s.Depth() || r.NumShards() != s.NumShards() || r.MTU != s.MTU:
				return fmt.Errorf("rules %s and %s count in the same store; mode, service, depth, shards and mtu must be the same in both", s.ID, r.ID)
			case a.Overlaps(&b.Area):
				return fmt.Errorf("rules %s and %s count in the same store and their counters overlap; give one of them %s=%#x", s.ID, r.ID, keyAt, max(a.End(), b.End()))
			}
		}
	}
	return nil
}

// wordLen is the size of a counter in bytes.
const wordLen = extmem.Align

// Layout says where the counters of a rule are.
type Layout struct {
	// Area is where the counters are in the memory of the stores.
	extmem.Area
	// Shards is the number of connections to each store.
	Shards int

	address, bytes bool
	shift          uint
	from           uint64
}

// LayoutOf returns the layout of a valid rule. Servers lacks a store whose name is not resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	return Layout{
		Area: extmem.Area{
			Servers: extmem.Servers(r.Options[hotwords.KeyStore]), Offset: extmem.Offset(r.Options[keyAt]),
			Cells: extmem.Number(r.Options[keySlots], defaultSlots), Size: wordLen,
		},
		Shards: r.NumShards(), address: r.Options[keyPer] == pers[1], bytes: r.Options[keyAdd] == adds[1],
		shift: hotwords.ShiftOf(r), from: r.From,
	}
}

// Slot returns the number of the counter that counts a request.
func (l *Layout) Slot(server netip.Addr, t *handler.Target) int {
	if l.address {
		return int((t.VA>>l.shift)-(l.from>>l.shift)) & (1<<62 - 1) % l.Cells
	}
	return FlowSlot(t.From, server, t.To, l.Cells)
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
	store, offset = l.Area.Place(uint64(slot))
	return store, slot / len(l.Servers) % l.Shards, offset
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
