package statestore

import (
	"cmp"
	_ "embed" // of help.md
	"fmt"
	"io"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/hotwords"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/requester"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

var Kind = handler.Kind{
	Name: "count", Actions: []rules.Action{hotwords.Count, Measure}, Mode: rules.Hardened, Selects: Selects,
	New: func(e *handler.Env) handler.Handler { return New(*e) },
	Listings: []handler.Listing{
		handler.NewListing(Help, (*Machine).list, PrintStores),
		handler.NewListing(slotsHelp, (*Machine).slots, printSlots),
		handler.NewListing(FlowsHelp, (*Machine).flows, printFlows),
	},
}

func (m *Machine) Kind() *handler.Kind { return &Kind }

//go:embed help.md
var helpText string

// Help describes the listing of connections to memory servers that have counters.
var Help = handler.Help{
	Name:  "counted",
	Short: "Show what the switch has counted in the memory of servers",
	Text:  helpText,
	Most:  "show at most this many connections; 0 means all",
}

// Store is a connection to a memory server that has counters.
type Store struct {
	Server netip.Addr `json:"server"`
	Shard  int        `json:"shard"`
	State  string     `json:"state"`
	// Pending and InFlight are amounts. Counters is the number of counters that wait. Adds is the
	// number of FETCH_ADDs in flight, and Depth the largest allowed number.
	Pending  uint64 `json:"pending"`
	Counters int    `json:"counters"`
	InFlight uint64 `json:"inFlight"`
	Adds     int    `json:"adds"`
	Depth    int    `json:"depth"`
	// Address, RKey and Bytes describe the region in which the server lets the switch count; Bytes
	// is 0 if the switch does not know the region yet.
	Address uint64 `json:"address"`
	RKey    uint32 `json:"rkey"`
	Bytes   int    `json:"bytes"`
	Why     string `json:"why,omitempty"`
}

// list lists the connections that rules need, or on which an amount to add to a counter waits or is in
// flight.
func (m *Machine) list(clock.Time) (list []Store) {
	for _, ch := range m.Links.All {
		if ch.users == 0 && ch.pending.used == 0 && ch.flight.n == 0 {
			continue
		}
		s := Store{
			Server: ch.Key().Server, Shard: shardOf(ch.Key()), State: ch.conn.State().String(), Pending: ch.pending.sum,
			Counters: ch.pending.used, InFlight: ch.flight.sum, Adds: ch.flight.n, Depth: ch.depth, Why: ch.Why(),
		}
		if ch.conn.State() == requester.Up {
			s.Depth = ch.limit()
		}
		if ch.known {
			s.Address, s.RKey, s.Bytes = ch.grant.Region.Addr, ch.grant.Region.RKey, ch.grant.Region.Len
		}
		list = append(list, s)
	}
	return list
}

// shardOf returns the number of a connection among those of its action to a server.
func shardOf(k switchconn.Key) int {
	return k.Shard % (switchconn.MeasureShard - switchconn.CountShard)
}

func PrintStores(out io.Writer, host func(netip.Addr) string, list []Store) error {
	return handler.WriteTable(out, list, "no rule counts in the memory of a server; add one: `rdmalab switch rules add server=ms0 action=count store=ms1`",
		"STORE\tSTATE\tPENDING\tIN FLIGHT\tREGION", func(s *Store) string {
			region := "-"
			if s.Bytes != 0 {
				region = fmt.Sprintf("%#x+%d, R_Key %#x", s.Address, s.Bytes, s.RKey)
			}
			if s.Why != "" {
				region += "  " + s.Why
			}
			return fmt.Sprintf("%s/%d\t%s\t%d (%d)\t%d (%d of %d)\t%s", host(s.Server), s.Shard, s.State, s.Pending, s.Counters, s.InFlight, s.Adds, s.Depth, region)
		})
}

func (m *Machine) Info(clock.Time) handler.Info {
	pending, inFlight := m.Waiting()
	list := handler.Counters("", m.stats)
	list = append(list,
		handler.Counter{Name: "pending", Value: pending, Help: "how much of the amount waits in the switch"},
		handler.Counter{Name: "in_flight", Value: inFlight, Help: "how much of the amount is in FETCH_ADDs that are not answered"},
		handler.Counter{Name: "former", Value: m.Formerly(), Help: "how much earlier incarnations of the switch have counted and lost at most"})
	return handler.Info{Mode: Kind.Mode, Counters: append(list, handler.Counters("requester_", m.Links.Requested())...)}
}

// Tables lists the table of waiting amounts, which cannot be cleared, because the amounts would be
// lost, and that of flows.
func (m *Machine) Tables() []handler.Table {
	used := 0
	for _, ch := range m.Links.All {
		used += ch.pending.used
	}
	list := []handler.Table{{Name: "pending counts", Doc: "counters in servers' memory for which an amount waits in the switch", Used: used, Max: max(1, len(m.Links.All)) * MaxPending}}
	if len(m.frames.rules) > 0 {
		n, sketches := 0, m.frames.sketches()
		for _, t := range sketches {
			n += t.Len()
		}
		list = append(list, handler.Table{Name: tableFlows, Doc: "flows of packets that rules of action measure remember", Used: n, Max: len(sketches) * MaxFlows, Clear: true})
	}
	return list
}

const tableFlows = "measured"

// ClearTable forgets the flows that rules of action measure remember, and returns how many there
// were. The counters in servers' memory stay as they are.
func (m *Machine) ClearTable(name string) (n int) {
	if name != tableFlows {
		return 0
	}
	for _, t := range m.frames.sketches() {
		n += t.Len()
		t.Clear()
	}
	return n
}

// Spec declares what a chip would need: for each connection, the table of waiting amounts and the
// copies of the FETCH_ADDs in flight. A chip can keep these copies because they are small.
func (m *Machine) Spec() pipeline.Part {
	n, inFlight := max(1, len(m.Links.All)), 0
	for _, ch := range m.Links.All {
		inFlight = max(inFlight, ch.depth)
	}
	inFlight = cmp.Or(inFlight, rules.MaxDepth)
	rows := 1
	for i := range m.counts {
		rows = max(rows, m.counts[i].Rows)
	}
	flows := 0
	for _, k := range m.frames.rules {
		rows = max(rows, k.counted.Rows)
		flows += flowsOf(k.counted.rule)
	}
	p := pipeline.Part{
		Tables: []pipeline.TableSpec{{Name: "counting rules", KeyBits: 128 + 32 + 2*64, ValueBits: 48 + 20 + 8, Entries: rules.MaxRules}},
		Registers: []pipeline.RegisterSpec{
			// An entry has the number of a counter, the amount that waits for the counter, and
			// whether the entry is in use.
			{Name: "pending counts", Width: 32 + 64 + 1, Entries: n * MaxPending, Each: MaxPending},
			// An entry has the PSN of a FETCH_ADD, its counter, and its amount.
			{Name: "adds in flight", Width: 24 + 32 + 64, Entries: n * inFlight, Each: inFlight},
			// An entry has a connection's queue pair, PSNs, window, and memory region.
			{Name: "stores", Width: 24 + 2*24 + 16 + 64 + 32 + 64, Entries: n},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedTimer, What: "retransmissions of FETCH_ADDs, one for each connection", Count: n},
			{Kind: pipeline.NeedPackets, What: "FETCH_ADDs", Count: rows},
			{Kind: pipeline.NeedICRC, What: "of the FETCH_ADDs, over 28 bytes"},
		},
	}
	if flows > 0 {
		// An entry has a flow's addresses, ports and protocol, its count, and by how much this may be
		// too large. The chip's control plane would have to find the entry with the smallest count.
		p.Tables = append(p.Tables, pipeline.TableSpec{Name: tableFlows, KeyBits: 2*128 + 2*16 + 8 + 16, ValueBits: 2 * 64, Entries: flows, Learned: true})
	}
	return p
}
