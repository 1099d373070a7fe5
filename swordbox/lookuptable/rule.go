package lookuptable

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/framering"
	"github.com/rdmalab/rdmalab/swordbox/requester"
)

// Bounds of rules with action lookup.
const (
	// MaxCapacity is how many home slots a table can have on a server, as far as the length of its region
	// allows. MaxCells is how many cells a server can have for frames. MaxCache is how many entries the
	// switch can keep.
	MaxCapacity, MaxCells, MaxCache = 1 << 30, 1 << 16, 1 << 16

	defaultCapacity, defaultCells, defaultCell, defaultCache = 1 << 16, 512, 2048, 1024
)

// Keys that only rules with action lookup have.
const (
	keyTable    = "table"
	keyMatch    = "match"
	keyCapacity = "capacity"
	keyCells    = "cells"
	keyCell     = "cell"
	keyCache    = "cache"
	keyMiss     = "miss"
	keyBase     = "base"
	keyPackets  = "packets"
	keyMasks    = "masks"
	keyHash     = "hash"
)

// Values of match, miss and packets; the first is the default.
var (
	matches = []string{"flow", "destination", "ternary"}
	misses  = []string{"forward", "drop"}
	packets = []string{"deposit", "recirculate"}
)

// cellSizes are the allowed sizes of a cell, in bytes.
var cellSizes = []string{"512", "1024", "2048", "4096"}

var Lookups = rules.Register(rules.Definition{
	Name: "lookup", Doc: "looks up the IP packets that a host sends in a table in the memory of servers, and does with each what its entry says; " +
		"see `rdmalab switch lookup`",
	Queues: true, Dials: func(*rules.Rule) bool { return true }, Check: check, Together: together, Memory: memoryOf, Hosts: []string{keyTable, keyVIP, KeyPool, KeyDrain}, Shares: extmem.LimitKeys,
	Keys: append(virtualKeys(), []rules.Field{
		extmem.ServersKey(keyTable, "ms0,ms1", fmt.Sprintf("with action lookup: up to %d memory servers, separated by commas. Each entry of the table is on one of them, which a hash chooses. Required", extmem.MaxServers)),
		rules.Option(keyMatch, "destination", "with action lookup: what an entry matches: a flow (addresses, protocol and ports) or a destination (its address), or (ternary) the bits of a flow under one of the masks; "+
			"RoCEv2 packets whose entry rewrites an address are dropped, because their ICRC covers it; "+
			"default: flow", extmem.OneOf(matches...)),
		rules.Option(keyCapacity, "65536", fmt.Sprintf("with action lookup: slots on each server, 1 to %d; a slot has 64 bytes, in mode published the size of a cell. Give all servers together twice as many slots as there are entries; default: %d", MaxCapacity, defaultCapacity),
			extmem.Between(1, MaxCapacity)),
		rules.Option(keyCells, "512", fmt.Sprintf("with action lookup: cells (places for packets that wait for their entry) on each server, 1 to %d; in mode published each slot has a cell, and the value is how many packets may wait; default: %d", MaxCells, defaultCells),
			extmem.Between(1, MaxCells)),
		rules.Option(keyCell, "2048", fmt.Sprintf("with action lookup: bytes of a cell, of which %d are a header; one of %s, and at most the path MTU; default: %d",
			framering.HeaderLen, strings.Join(cellSizes, ", "), defaultCell), extmem.OneOf(cellSizes...)),
		rules.Option(keyCache, "1024", fmt.Sprintf("with action lookup: entries that the switch keeps in its cache, 0 to %d, rounded up to a multiple of 4; 0 means no cache; default: %d", MaxCache, defaultCache), extmem.Between(0, MaxCache)),
		rules.Option(keyMiss, "drop", "with action lookup: what happens to a packet without an entry: forward or drop; default: forward", extmem.OneOf(misses...)),
		rules.Option(keyPackets, "recirculate", "with action lookup: where a packet waits for its entry: deposit writes it to a cell in the server's memory, recirculate keeps it in the switch, "+
			"whose memory then has `cells` places of `cell` bytes for each server; default: deposit", extmem.OneOf(packets...)),
		rules.Option(keyMasks, "to/24+proto+dport,to/16", fmt.Sprintf("with match=ternary: up to %d masks, separated by commas, the one with the highest priority first; each is parts with plus signs between them: "+
			"from and to (addresses; from/24 compares the leading bits, from/0.0.0.255 these bits), proto, sport and dport (ports; dport/0xfff0 compares these bits), or any, which compares nothing", MaxMasks),
			func(s string) error { _, err := ParseMasks(s); return err }),
		rules.Option(keyHash, CRC32, fmt.Sprintf("with action lookup: the function that makes the place of an entry, and its key: %s, %s, or one of a Go module of your own (lookuptable.RegisterHash); default: %s", Mix, CRC32, Mix), checkHash),
		rules.Option(keyBase, "0x1000", "with action lookup: offset of the table in the region of each server's memory service, a multiple of 8; the cells follow the table, in mode published each cell its slot; "+
			"default: 0", extmem.CheckOffset),
	}...),
})

func check(r *rules.Rule) error {
	l := LayoutOf(r)
	switch {
	case r.Options[keyTable] == "":
		return fmt.Errorf("action lookup needs the key %s", keyTable)
	case r.Service == "":
		return errors.New("service none: the switch must connect to the servers to learn where their memory is; name their service")
	case r.From != 0 || r.To != 0 || r.RKey != 0:
		return errors.New("range and rkey select requests; action lookup takes all packets of the host")
	case r.Shards != 0:
		return fmt.Errorf("shards has no meaning with action lookup; name several servers in %s", keyTable)
	case r.MTU != 0 && r.MTU < l.least():
		return fmt.Errorf("a cell of %d bytes, or the %d bytes that a lookup reads, are longer than the path MTU of %d bytes; choose an mtu of at least %d", l.Cell, l.probe()*SlotLen, r.MTU, l.least())
	}
	if err := l.Masks.check(r); err != nil {
		return err
	}
	if l.Hash.Key != nil && (len(l.Masks) > 0 || r.Options[keyVIP] != "") {
		return fmt.Errorf("%s=%s makes keys of its own, and a rule with the key %s or %s has those of flows", keyHash, l.Hash.Name, keyMasks, keyVIP)
	}
	if l.Recirculate && l.Published {
		return fmt.Errorf("%s=%s: the published rule deposits packets; leave out mode=published", keyPackets, packets[1])
	}
	if err := checkVirtual(r); err != nil {
		return err
	}
	return extmem.CheckLimits(r)
}

// together returns what is wrong with the rules of action lookup of one set. A host must have at
// most one such rule, and the tables of different rules must not overlap.
func together(list []*rules.Rule) error {
	for i, r := range list {
		a := LayoutOf(r)
		for _, s := range list[:i] {
			b := LayoutOf(s)
			switch {
			case r.Of(s.Server):
				return fmt.Errorf("rules %s and %s look up the packets of the same host; remove one of them", s.ID, r.ID)
			case a.overlaps(&b):
				return fmt.Errorf("rules %s and %s have tables in the same server that overlap; give one of them %s=%#x", s.ID, r.ID, keyBase, max(a.End(), b.End()))
			}
		}
	}
	return nil
}

func memoryOf(r *rules.Rule) rules.Memory {
	l := LayoutOf(r)
	a := l.all()
	return a.Memory(r.Service, keyBase)
}

// Layout is the table for which a rule of action lookup asks.
type Layout struct {
	// Servers are the addresses of the servers of the table. Each entry is in one of them. Service is
	// the service that lends their memory.
	Servers []netip.Addr
	Service string
	// Base is the offset of the table in each server's memory, in bytes. Capacity is the number of
	// home slots on each server; Probe-1 slots follow them.
	Base     uint64
	Capacity int
	// Cells is the number of cells on each server: places for frames that wait for their entry.
	// Cell is the size of one in bytes.
	Cells, Cell int
	// Cache is how many entries the switch keeps. Depth is how many READs of cells a hardened rule
	// may have in flight to each server.
	Cache, Depth int
	// VIP is the virtual address whose connections to Port go to hosts of Pool; the zero value means
	// that there is none. Drain are hosts that get no new connections.
	VIP         netip.Addr
	Port        uint16
	Pool, Drain []netip.Addr
	// Masks are the masks of match=ternary, the one with the highest priority first. Then Flow is true.
	Masks Masks
	// Hash makes the key and the hash of frames and entries; the zero value stands for Mix.
	Hash Hash
	// Flow is true if a key is a whole flow; otherwise it is the destination's address. DropMiss is
	// true if a frame without an entry is dropped.
	Flow, DropMiss bool
	// Recirculate is true if a frame waits in the switch for its entry. Then a server has no cells, and
	// Cells is how many frames may wait for entries of one server.
	Recirculate bool
	// Published is true if a key has one home slot, and the cell for a frame lies behind the home
	// slot of the frame's key. Then Cell is the size of a slot together with its cell, and Cells is
	// how many frames may wait for a READ.
	Published bool
	// Limits are those of the switch's requests to each server.
	Limits requester.Limits
}

// LayoutOf returns the layout of a valid rule. Layout.Servers leaves out a server whose name is not
// resolved yet.
func LayoutOf(r *rules.Rule) Layout {
	number := func(key string, fallback int) int { return extmem.Number(r.Options[key], fallback) }
	l := Layout{
		Capacity: number(keyCapacity, defaultCapacity), Cells: number(keyCells, defaultCells), Cell: number(keyCell, defaultCell), Cache: number(keyCache, defaultCache),
		Service: r.Service, Depth: r.Depth(), Flow: r.Options[keyMatch] != matches[1], DropMiss: r.Options[keyMiss] == misses[1], Published: r.Mode == rules.Published,
		Recirculate: r.Options[keyPackets] == packets[1],
	}
	l.VIP, l.Port, l.Pool, l.Drain = virtualOf(r)
	l.Hash = hashOf(r.Options[keyHash])
	l.Masks, _ = parsedMasks(r.Options[keyMasks])
	l.Limits = extmem.LimitsOf(r, extmem.FrameBurst)
	l.Servers, l.Base = extmem.Servers(r.Options[keyTable]), extmem.Offset(r.Options[keyBase])
	return l
}

// same reports whether both layouts are equal, except that they may differ in DropMiss and Limits.
func (l *Layout) same(o *Layout) bool {
	return l.sameSlots(o) && l.Cells == o.Cells && l.Cell == o.Cell && l.Depth == o.Depth && l.Cache == o.Cache && l.Recirculate == o.Recirculate
}

// sameSlots reports whether both layouts have the same entries in the same slots.
func (l *Layout) sameSlots(o *Layout) bool {
	return slices.Equal(l.Servers, o.Servers) && l.Service == o.Service && l.Base == o.Base && l.Capacity == o.Capacity && l.Flow == o.Flow && l.Hash.Name == o.Hash.Name && l.VIP == o.VIP && l.Port == o.Port &&
		slices.EqualFunc(l.Masks, o.Masks, func(a, b Mask) bool { return a.same(&b) }) && l.At(1) == o.At(1)
}

// least returns the smallest path MTU with which the table can be used, in bytes.
func (l *Layout) least() int {
	if l.Recirculate {
		return l.probe() * SlotLen
	}
	return max(l.Cell, l.probe()*SlotLen)
}

// probe returns how many slots may have the entry of a key.
func (l *Layout) probe() int {
	if l.Published {
		return 1
	}
	return Probe
}

// Slots returns how many slots (places for entries) each server has.
func (l *Layout) Slots() int { return l.Capacity + l.probe() - 1 }

// Place returns where the entry of a key with hash h is: the index of its server, and its home
// slot. h modulo Capacity chooses the slot. Bit 40 and the higher bits of a product of h choose the
// server, because all lower bits of h have an effect on these bits.
func (l *Layout) Place(h uint64) (server, home int) {
	return int(h * 0x9e3779b97f4a7c15 >> 40 % uint64(len(l.Servers))), int(h % uint64(l.Capacity))
}

// At returns the offset of a slot in the server's memory, in bytes.
func (l *Layout) At(slot int) uint64 {
	if l.Published {
		return l.Base + uint64(slot)*uint64(l.Cell)
	}
	return l.Base + uint64(slot)*SlotLen
}

// Ring returns where the ring of cells is on a server. Only hardened rules have such a ring.
func (l *Layout) Ring(server int) extmem.Area {
	return extmem.Area{Servers: l.Servers[server : server+1], Cells: l.Cells, Size: l.Cell, Offset: l.At(l.Slots())}
}

// End returns the offset behind the last slot or cell on a server, in bytes.
func (l *Layout) End() uint64 {
	end := l.At(l.Slots())
	if !l.Published && !l.Recirculate {
		end += uint64(l.Cells) * uint64(l.Cell)
	}
	return end
}

// all returns the memory that the table takes on each server, as an Area with one cell on each
// server.
func (l *Layout) all() extmem.Area {
	return extmem.Area{Servers: l.Servers, Offset: l.Base, Cells: max(1, len(l.Servers)), Size: int(l.End() - l.Base)}
}

func (l *Layout) overlaps(o *Layout) bool {
	a, b := l.all(), o.all()
	return a.Overlaps(&b)
}
