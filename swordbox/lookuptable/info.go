package lookuptable

import (
	_ "embed" // of help.md
	"fmt"
	"io"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

var Kind = handler.Kind{
	Name: "lookup", Actions: []rules.Action{Lookups}, Mode: rules.Hardened,
	Listings: []handler.Listing{handler.NewListing(help, (*Machine).list, Print)},
}

func init() {
	Kind.New = func(e *handler.Env) handler.Handler {
		return New(Config{Kind: &Kind, Port: e.Port, MAC: e.MAC, Server: (*Link).newBouncer, Silence: e.Silence, Failed: e.Failed, Missing: e.Missing})
	}
}

//go:embed help.md
var helpText string

var help = handler.Help{
	Name:  "lookup",
	Short: "Show tables in servers' memory in which the switch looks up packets, and change their entries",
	Text:  helpText,
	Most:  "show at most this many tables; 0 means all",
}

// Item is a table as an operator sees it.
type Item struct {
	Rule string `json:"rule"`
	Port int    `json:"port"`
	Mode string `json:"mode"`
	// The fields from Frames to Dropped count frames. Flight is how many are in flight.
	Frames  uint64 `json:"frames"`
	Cached  uint64 `json:"cached"`
	Hits    uint64 `json:"hits"`
	Misses  uint64 `json:"misses"`
	Dropped uint64 `json:"dropped"`
	Flight  int    `json:"flight"`
	// Written, Removed and Refused count changes of entries. Waiting is how many have not ended.
	Written uint64 `json:"written"`
	Removed uint64 `json:"removed"`
	Refused uint64 `json:"refused"`
	Waiting int    `json:"waiting"`
	// Used is how many entries the cache has, Cache how many it can have.
	Used  int             `json:"used"`
	Cache int             `json:"cache"`
	Table []extmem.Server `json:"table"`
}

func (m *Machine) list(clock.Time) (list []Item) {
	for _, t := range m.tables {
		s := &t.stats
		i := Item{
			Rule: t.id, Port: t.port, Mode: m.cfg.Kind.Mode.String(), Frames: s.Frames, Cached: s.Cached, Hits: s.Hits, Misses: s.Misses,
			Dropped: s.Torn + s.Unfit + s.Lost + s.Full + s.Blocked + s.Long, Flight: t.inFlight(), Written: s.Written, Removed: s.Removed,
			Refused: s.Refused, Waiting: t.waiting(), Used: t.cache.len(), Cache: len(t.cache.places),
		}
		for _, l := range t.links {
			i.Table = append(i.Table, l.Server(l.srv.Up()))
		}
		list = append(list, i)
	}
	return list
}

func Print(out io.Writer, host func(netip.Addr) string, list []Item) error {
	return handler.WriteTable(out, list,
		"no rule looks up packets; add one: `rdmalab switch rules add server=cn0 action=lookup table=ms0 match=destination`",
		"RULE\tMODE\tFRAMES\tCACHED\tHITS\tMISSES\tFLIGHT\tDROPPED\tENTRIES\tCACHE\tTABLE", func(i *Item) string {
			return fmt.Sprintf("%s\t%s\t%d\t%d\t%d\t%d\t%d\t%d\t%d, %d (%d, %d)\t%d of %d\t%s", i.Rule, i.Mode, i.Frames, i.Cached, i.Hits, i.Misses,
				i.Flight, i.Dropped, i.Written, i.Removed, i.Waiting, i.Refused, i.Used, i.Cache, extmem.Names(i.Table, host))
		})
}

func (m *Machine) Info(clock.Time) handler.Info {
	cells, waiting := 0, 0
	for _, t := range m.tables {
		waiting += t.waiting()
		for _, l := range t.links {
			cells += l.srv.Cells()
		}
	}
	list := append(handler.Counters("", m.Stats()),
		handler.Counter{Name: "in_flight", Value: uint64(m.InFlight()), Help: "packets in flight through servers' memory"},
		handler.Counter{Name: "waiting", Value: uint64(waiting), Help: "changes of entries that have not ended"},
		handler.Counter{Name: "cells", Value: uint64(cells), Help: "cells in use in servers' memory"})
	if m.cfg.Kind.Mode == rules.Hardened {
		list = append(list, handler.Counters("requester_", m.Links.Requested())...)
	}
	return handler.Info{Mode: m.cfg.Kind.Mode, Counters: list}
}

// cacheName is the name of the table of entries that the switch keeps.
const cacheName = "lookup cache"

func (m *Machine) Tables() []handler.Table {
	if len(m.tables) == 0 {
		return nil
	}
	kept := handler.Table{Name: m.prefix() + cacheName, Doc: "table entries that the switch keeps", Clear: true}
	cells := handler.Table{Name: m.prefix() + "lookup cells", Doc: "cells in servers' memory with packets that wait for their entry"}
	changes := handler.Table{Name: m.prefix() + "lookup changes", Doc: "changes of table entries that have not ended"}
	for _, t := range m.tables {
		kept.Used += t.cache.len()
		kept.Max += len(t.cache.places)
		for _, l := range t.links {
			cells.Used += l.srv.Cells()
		}
		cells.Max += t.Cells * len(t.links)
		changes.Used += t.waiting()
		changes.Max += (MaxWaiting + 1) * len(t.links)
	}
	return []handler.Table{kept, cells, changes}
}

// prefix distinguishes the tables of the two modes.
func (m *Machine) prefix() string {
	if m.cfg.Kind.Mode == rules.Published {
		return "published "
	}
	return ""
}

func (m *Machine) ClearTable(string) (n int) {
	for _, t := range m.tables {
		n += t.cache.clear()
	}
	return n
}

// Spec declares what a chip would need: the cache, the keys of frames in flight, and for each
// connection the requests in flight.
func (m *Machine) Spec() pipeline.Part {
	const keyBits, actionBits, addrBits = 2*128 + 2*16 + 8 + 1, 8 + 6 + 16 + 128 + 16, 128
	links, cells, kept := 0, 0, 0
	for _, t := range m.tables {
		links += len(t.links)
		cells += len(t.links) * t.Cells
		kept += len(t.cache.places)
	}
	links, cells, kept = max(1, links), max(defaultCells, cells), max(defaultCache, kept)
	p := pipeline.Part{
		Tables: []pipeline.TableSpec{
			{Name: m.prefix() + "lookups", KeyBits: 8, ValueBits: 16, Entries: rules.MaxRules},
			{Name: m.prefix() + cacheName, KeyBits: keyBits, ValueBits: actionBits, Entries: kept, Learned: true},
			// An entry has the MAC address of a rewritten destination.
			{Name: m.prefix() + "lookup MACs", KeyBits: addrBits, ValueBits: 48, Entries: pipeline.MaxPorts},
		},
		Registers: []pipeline.RegisterSpec{
			// An entry has three positions in the ring of cells, the numbers of two frames, the
			// ring's tag, and the connection's queue pair, PSNs, window, and memory region.
			{Name: m.prefix() + "lookup links", Width: 3*32 + 2*32 + 32 + 24 + 2*24 + 16 + 64 + 32 + 64, Entries: links},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedPackets, What: "WRITE of a packet, READs of its entry and of the packet", Count: 3},
			{Kind: pipeline.NeedICRC, What: "of WRITEs, over a packet"},
		},
	}
	p.Tables = append(p.Tables, m.optional(keyBits, addrBits)...)
	if m.cfg.Kind.Mode == rules.Published {
		// Each register has the slot of a packet that waits for its READ.
		p.Registers = append(p.Registers, pipeline.RegisterSpec{Name: m.prefix() + "lookup waits", Width: 32, Entries: cells})
		return p
	}
	p.Registers = append(p.Registers,
		pipeline.RegisterSpec{Name: "lookup keys", Width: keyBits + actionBits + 8, Entries: cells},
		pipeline.RegisterSpec{Name: "lookup flights", Width: 16, Entries: links * hashes},
		pipeline.RegisterSpec{Name: "lookup lengths", Width: 16, Entries: cells},
		// Each register has the address of a request, and whether it is a READ or a WRITE.
		pipeline.RegisterSpec{Name: "lookup requests", Width: 64 + 1, Entries: links * extmem.InFlight, Each: extmem.InFlight})
	p.Needs = append(p.Needs, pipeline.Need{Kind: pipeline.NeedTimer, What: "retransmissions, one for each connection to a server of a table", Count: links})
	return p
}

// optional declares what only rules with masks or with a virtual address need.
func (m *Machine) optional(keyBits, addrBits int) (list []pipeline.TableSpec) {
	masks, hosts, tables := 0, 0, 0
	for _, t := range m.tables {
		if masks += len(t.Masks); t.balances() {
			tables++
			hosts += len(t.Pool) + len(t.Drain)
		}
	}
	if masks > 0 {
		list = append(list, pipeline.TableSpec{Name: "lookup masks", KeyBits: 16, ValueBits: keyBits, Entries: masks})
	}
	if tables > 0 {
		list = append(list,
			pipeline.TableSpec{Name: "lookup pool", KeyBits: 16, ValueBits: addrBits, Entries: hosts},
			pipeline.TableSpec{Name: "lookup new connections", KeyBits: keyBits, ValueBits: addrBits + 1, Entries: tables * maxLearning, Learned: true},
			pipeline.TableSpec{Name: "lookup closed connections", KeyBits: keyBits, ValueBits: 64, Entries: tables * maxClosing, Learned: true})
	}
	return list
}
