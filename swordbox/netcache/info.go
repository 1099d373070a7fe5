package netcache

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

// Kind is the handler of rules of action cache.
var Kind = handler.Kind{
	Name: "cache", Actions: []rules.Action{Action}, Mode: rules.Hardened,
	New:      func(e *handler.Env) handler.Handler { return New(*e) },
	Listings: []handler.Listing{handler.NewListing(Help, (*Machine).list, printCaches)},
}

func (m *Machine) Kind() *handler.Kind { return &Kind }

//go:embed help.md
var helpText string

// Help describes the listing of caches.
var Help = handler.Help{
	Name:  "cached",
	Short: "Show the caches in servers' memory from which the switch answers GETs of a key-value server",
	Text:  helpText,
	Most:  "show at most this many caches; 0 means all",
}

// Item is a cache as an operator sees it.
type Item struct {
	Rule   string     `json:"rule"`
	Server netip.Addr `json:"server"`
	Port   uint16     `json:"port"`
	// Keys is how many keys have a cell, Warm how many of them have a value that can answer GETs, Cells how many
	// there can be.
	Keys  int `json:"keys"`
	Warm  int `json:"warm"`
	Cells int `json:"cells"`
	// The fields from Gets to Forgotten are counters.
	Gets      uint64          `json:"gets"`
	Answered  uint64          `json:"answered"`
	Filled    uint64          `json:"filled"`
	Writes    uint64          `json:"writes"`
	Forgotten uint64          `json:"forgotten"`
	Store     []extmem.Server `json:"store"`
}

func (m *Machine) list(clock.Time) (list []Item) {
	for _, k := range m.caches {
		s := &k.stats
		i := Item{Rule: k.id, Server: k.server, Port: k.Layout.Port, Cells: k.index.cells, Gets: s.Gets, Answered: s.Answered, Filled: s.Filled, Writes: s.Writes, Forgotten: s.Forgotten}
		i.Warm, i.Keys = k.index.warm, k.index.used
		for _, ch := range k.links {
			i.Store = append(i.Store, ch.Server(ch.Up()))
		}
		list = append(list, i)
	}
	return list
}

func printCaches(out io.Writer, host func(netip.Addr) string, list []Item) error {
	return handler.WriteTable(out, list, "no rule answers GETs; add one: `rdmalab switch rules add server=cn0 action=cache store=ms0`",
		"RULE\tSERVER\tGETS\tANSWERED\tSHARE\tWRITES\tVALUES\tOF\tFORGOTTEN\tSTORE", func(i *Item) string {
			share := 0.0
			if i.Gets > 0 {
				share = 100 * float64(i.Answered) / float64(i.Gets)
			}
			return fmt.Sprintf("%s\t%s:%d\t%d\t%d\t%.1f%%\t%d\t%d\t%d\t%d\t%s", i.Rule, host(i.Server), i.Port, i.Gets, i.Answered, share, i.Writes, i.Warm, i.Cells, i.Forgotten, extmem.Names(i.Store, host))
		})
}

// Waiting returns how many GETs wait for a READ of their value.
func (m *Machine) Waiting() (n int) {
	for _, k := range m.caches {
		n += k.waits.count
	}
	return n
}

func (m *Machine) Info(clock.Time) handler.Info {
	list := append(handler.Counters("", m.Stats()), handler.Counter{Name: "waiting", Value: uint64(m.Waiting()), Help: "gets that wait for a value, or for its READ"})
	return handler.Info{Mode: Kind.Mode, Counters: append(list, handler.Counters("requester_", m.Links.Requested())...)}
}

// Tables lists the values that answer GETs.
func (m *Machine) Tables() []handler.Table {
	if len(m.caches) == 0 {
		return nil
	}
	t := handler.Table{Name: "cached values", Doc: "values in servers' memory that answer GETs", Clear: true}
	for _, k := range m.caches {
		t.Used += k.index.warm
		t.Max += k.index.cells
	}
	return []handler.Table{t}
}

// ClearTable makes all values unknown.
func (m *Machine) ClearTable(string) (n int) {
	for _, k := range m.caches {
		n += k.index.clear()
	}
	return n
}

// Spec declares what a chip would need: keys and states of values, the requests that are with the server, and GETs
// that wait.
func (m *Machine) Spec() pipeline.Part {
	n, cells, links, counts := max(1, len(m.caches)), 0, 0, 0
	for _, k := range m.caches {
		cells += k.index.cells
		links += len(k.links)
		counts += sketchHashes * len(k.index.counts[0])
	}
	cells, links, counts = max(cells, defaultItems), max(links, 1), max(counts, sketchHashes*minSketch)
	const senderBits = 128 + 1 + 64 + 16 + 16
	return pipeline.Part{
		Tables: []pipeline.TableSpec{{Name: "cached servers", KeyBits: 128 + 16, ValueBits: 16, Entries: n}},
		Registers: []pipeline.RegisterSpec{
			// A key has its hash, its state, the number of its probe, a digest, a length, a time, a count and the
			// number of its last halving, how many GETs are held, and whether any may be. The number of the probe from which on
			// values count is for all keys.
			{Name: "cached keys", Width: 64 + 3 + 64 + 64 + 16 + 64 + 2*32 + 9 + 1, Entries: cells, Each: ways},
			{Name: "cache epoch", Width: 64, Entries: n},
			{Name: "cache sketch", Width: 32, Entries: counts},
			{Name: "cache requests", Width: senderBits + 2 + 64 + 32, Entries: n * maxAsked, Each: ways},
			{Name: "cache probes", Width: senderBits + 32 + 3*64 + 1, Entries: n * maxProbes},
			{Name: "cache waits", Width: maxFrame*8 + 3*64 + 2*9 + 2, Entries: n * maxWaits},
			{Name: "cache links", Width: 24 + 2*24 + 16 + 64 + 32 + 64, Entries: links},
			{Name: "cache READs and WRITEs", Width: 64 + 1, Entries: links * extmem.InFlight, Each: extmem.InFlight},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedTimer, What: "retransmissions, one for each connection to a server of a cache", Count: links},
			{Kind: pipeline.NeedPackets, What: "READs for GETs that have waited, WRITE of a value, answer to a GET", Count: 2 + maxWoken},
			{Kind: pipeline.NeedICRC, What: "of WRITEs of values"},
		},
	}
}
