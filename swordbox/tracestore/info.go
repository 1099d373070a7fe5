package tracestore

import (
	_ "embed" // of help.md
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/extmem"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/packettrace"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Kind is the handler of rules of action trace.
var Kind = handler.Kind{
	Name: "trace", Actions: []rules.Action{Action}, Mode: rules.Hardened,
	New:      func(e *handler.Env) handler.Handler { return New(*e) },
	Listings: []handler.Listing{handler.NewListing(Help, (*Machine).list, printRings)},
}

func (m *Machine) Kind() *handler.Kind { return &Kind }

//go:embed help.md
var helpText string

// Help describes the listing of rings.
var Help = handler.Help{
	Name:  "traces",
	Short: "Show the rings in servers' memory to which the switch writes the headers of packets",
	Text:  helpText,
	Most:  "show at most this many rings; 0 means all",
}

// Ring is a ring as an operator sees it.
type Ring struct {
	// Rules are the ids of the rules that write to the ring.
	Rules []string `json:"rules"`
	// Servers have the cells: cell i is in server i modulo the number of servers, and the first one of
	// each at Offset.
	Servers []extmem.Server `json:"servers"`
	Offset  uint64          `json:"offset"`
	// Cells is how many records the ring can have. Newest is the number of the newest record; 0 means
	// that there is none. Waiting records are in the switch.
	Cells   int    `json:"cells"`
	Newest  uint64 `json:"newest"`
	Waiting uint64 `json:"waiting"`
	// Epoch is in the ring's records; 0 if there is none yet.
	Epoch uint32 `json:"epoch"`
	Every uint64 `json:"every"`
}

func (m *Machine) list(clock.Time) (list []Ring) {
	for _, g := range m.rings {
		x := Ring{Rules: g.ids, Offset: g.Offset, Cells: g.Cells, Newest: g.number, Waiting: g.waiting(), Epoch: g.epoch, Every: g.Every}
		for i := range g.batches {
			ch := g.batches[i].ch
			x.Servers = append(x.Servers, ch.Server(ch.Conn.Up()))
		}
		list = append(list, x)
	}
	return list
}

func printRings(out io.Writer, host func(netip.Addr) string, list []Ring) error {
	return handler.WriteTable(out, list, "no rule records packets; add one: `rdmalab switch rules add server=cn0 action=trace store=ms1`",
		"RULES\tSERVERS\tOFFSET\tRECORDS\tOF\tWAITING\tSAMPLE", func(g *Ring) string {
			return fmt.Sprintf("%s\t%s\t%#x\t%d\t%d\t%d\t1/%d", strings.Join(g.Rules, ","), extmem.Names(g.Servers, host), g.Offset, min(g.Newest, uint64(g.Cells)), g.Cells, g.Waiting, g.Every)
		})
}

func (m *Machine) Info(clock.Time) handler.Info {
	waiting, inFlight := m.Waiting()
	list := append(handler.Counters("", m.stats),
		handler.Counter{Name: "waiting", Value: waiting, Help: "records that wait in the switch for their WRITE"},
		handler.Counter{Name: "in_flight", Value: inFlight, Help: "records in WRITEs that are not answered"})
	return handler.Info{Mode: Kind.Mode, Counters: append(list, handler.Counters("requester_", m.Links.Requested())...)}
}

// Tables lists the table of records that wait, which cannot be cleared.
func (m *Machine) Tables() []handler.Table {
	most, used := 0, 0
	for _, g := range m.rings {
		most += len(g.batches) * g.Batch
		used += int(g.waiting())
	}
	return []handler.Table{{Name: "trace batches", Doc: "records of packets that wait in the switch for their WRITE", Used: used, Max: most}}
}

// ClearTable clears nothing: the waiting records would be lost.
func (m *Machine) ClearTable(string) int { return 0 }

// keyOf returns the key of the connection to a server.
func keyOf(a netip.Addr) switchconn.Key {
	return switchconn.Key{Server: a, Shard: switchconn.TraceShard}
}

// Spec declares what a chip would need: for each connection, batches of records and the copies of the
// WRITEs in flight, which have the records again.
func (m *Machine) Spec() pipeline.Part {
	n, batch, inFlight := max(1, len(m.Links.All)), defaultBatch, rules.MaxDepth
	for _, g := range m.rings {
		batch = max(batch, g.Batch)
	}
	return pipeline.Part{
		Tables: []pipeline.TableSpec{{Name: "trace rules", KeyBits: 16, ValueBits: 48 + 20 + 8, Entries: rules.MaxRules}},
		Registers: []pipeline.RegisterSpec{
			{Name: "trace batches", Width: packettrace.Size * 8, Entries: n * batch, Each: batch},
			// An entry has the PSN of a WRITE, its place, and its records.
			{Name: "records in flight", Width: 24 + 64 + batch*packettrace.Size*8, Entries: n * inFlight, Each: inFlight},
			// An entry has a connection's queue pair, PSNs, window, and memory region.
			{Name: "trace servers", Width: 24 + 2*24 + 16 + 64 + 32 + 64, Entries: n},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedTimer, What: "retransmissions of WRITEs and batches, one for each connection", Count: n},
			{Kind: pipeline.NeedPackets, What: "WRITEs of records", Count: 1},
			{Kind: pipeline.NeedICRC, What: "of the WRITEs, over up to 4 KiB"},
		},
	}
}
