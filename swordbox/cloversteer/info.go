package cloversteer

import (
	_ "embed" // of help.md
	"fmt"
	"io"
	"net/netip"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
)

// Stats counts what a Machine did.
type Stats struct {
	Stores         uint64 `name:"stores" help:"superblocks of stores that were learnt"`
	Unusable       uint64 `name:"stores_unusable" help:"stores whose nodes carry no key or have several copies, or whose superblock has no layout"`
	Nodes          uint64 `name:"nodes" help:"data WRITEs of nodes"`
	Appends        uint64 `name:"appends" help:"CMP_SWAPs that append a node to the chain of a key"`
	Reads          uint64 `name:"reads" help:"READs of nodes that are known"`
	SteeredAppends uint64 `name:"appends_steered" help:"appends sent to the newest node of their key instead of the node that the client named"`
	SteeredReads   uint64 `name:"reads_steered" help:"READs sent to the newest node of their key instead of the node that the client named"`
	Linked         uint64 `name:"appends_linked" help:"appends that succeeded"`
	Failed         uint64 `name:"tails_wrong" help:"failed appends to the node that was taken for the tail"`
	Lost           uint64 `name:"appends_lost" help:"failed appends to another node"`
	Absorbed       uint64 `name:"appends_absorbed" help:"appends that were overwritten by the one before which they waited"`
	Late           uint64 `name:"appends_late" help:"successful appends whose place in the chain is not known"`
	Foreign        uint64 `name:"appends_foreign" help:"appends of nodes that were not seen"`
	Elsewhere      uint64 `name:"tails_elsewhere" help:"requests not steered because the tail is on another server"`
	Stale          uint64 `name:"stale_steered" help:"appends to reused entries, steered to the tail of their key"`
	Translated     uint64 `name:"translated" help:"requests steered to a node of another version"`
	Answers        uint64 `name:"answers_translated" help:"responses of steered requests that were changed to the version that the client expects"`
	Unsure         uint64 `name:"appends_unsure" help:"appends out of order, or on connections whose two flows are not both known"`
	Unlike         uint64 `name:"tails_unlike" help:"requests not steered because length or R_Key of the tail differ, or its version is lower"`
	Held           uint64 `name:"held" help:"appends that waited for the one before"`
	HeldReads      uint64 `name:"reads_held" help:"READs that waited for the append before"`
	Expired        uint64 `name:"holds_expired" help:"appends that waited for the full time and were sent unchanged"`
	LetGo          uint64 `name:"holds_let_go" help:"waiting requests that were sent because another request followed"`
	Stalled        uint64 `name:"chains_stalled" help:"appends that were not answered in time"`
	Impatient      uint64 `name:"held_copies" help:"retransmissions of waiting requests, dropped"`
	Repeated       uint64 `name:"steered_again" help:"retransmissions sent to where the first copy went"`
	Forgotten      uint64 `name:"tails_forgotten" help:"keys of which the switch has forgotten the newest node and the places of the others"`
	Overwritten    uint64 `name:"nodes_overwritten" help:"nodes forgotten because a request has changed their memory"`
	NoRoom         uint64 `name:"no_room" help:"appends that were not followed or could not wait, because a table was full"`
	NodesEvicted   uint64 `name:"nodes_evicted" help:"nodes forgotten because the table of nodes was full"`
	KeysEvicted    uint64 `name:"keys_evicted" help:"keys forgotten because the table of keys was full"`
}

func (m *Machine) Stats() Stats { return m.stats }

// Info lists the counters. The machine has no shared connections, moved flows or words.
func (m *Machine) Info(clock.Time) handler.Info {
	return handler.Info{Mode: rules.Hardened, Counters: handler.Counters("", m.stats)}
}

// Keys returns the warm keys, which are those that may be hot. The hottest comes first.
func (m *Machine) Keys(now clock.Time) []Key {
	if m.hot.warm == nil {
		return nil
	}
	m.hot.rank()
	m.hot.measure(now)
	servers := make(map[uint32]netip.Addr)
	for _, s := range m.stores.parts {
		servers[s.incarnation] = s.server
	}
	var list []Key
	for _, w := range m.hot.order {
		k := Key{Key: w.n, Reads: w.reads, Appends: w.appends, Steered: w.steered, Rate: w.rate}
		if c := m.chains.byKey.find(w.id); c != nil {
			if t := m.chains.node(c.tail); t != nil {
				k.Tail = &Tail{
					Server: servers[t.incarnation], RKey: t.rkey, VA: t.va, Length: int(t.length),
					Version: uint8(t.version), Sequence: t.seq,
				}
			}
			for i := c.first; i != none; i = m.wait.list[i].next {
				k.Waiting++
			}
		}
		list = append(list, k)
	}
	return list
}

func (m *Machine) Spec() pipeline.Part {
	const incarnationBits, serialBits, refBits, waiterBits = 32, 64, 64 + 32 + 64, 72 * 8
	return pipeline.Part{
		Tables: []pipeline.TableSpec{
			// Maps address and incarnation of the memory to the node's key, serial, R_Key, length,
			// version, tombstone flag and place.
			{
				Name: "steer nodes", KeyBits: 64 + incarnationBits, ValueBits: 64 + serialBits + 32 + 32 + 8 + 1 + 64 + 32,
				Entries: capacity(m.cfg.Nodes), Learned: true,
			},
			// Maps the key to tail, place, append in flight and list of waiting requests.
			{
				Name: "steer keys", KeyBits: 64 + incarnationBits, ValueBits: refBits + 64 + 32 + 1 + 64 + 32 + 32,
				Entries: capacity(m.cfg.Keys), Learned: true,
			},
			// Maps the server to base, R_Key, layout, incarnation and store.
			{Name: "steer stores", KeyBits: 128, ValueBits: 64 + 32 + 8*superLen + 2*incarnationBits, Entries: maxParts, Learned: true},
			// Maps the key to its counts, rank and rate.
			{
				Name: "steer hot keys", KeyBits: 64 + incarnationBits, ValueBits: 32 + 16 + 3*64 + 64 + 64,
				Entries: warmSets * warmWays, Learned: true,
			},
		},
		Registers: []pipeline.RegisterSpec{
			{Name: "steer sketch", Width: 32, Entries: sketchHashes * sketchCols},
		},
		Needs: []pipeline.Need{
			{Kind: pipeline.NeedStore, What: "appends and READs that wait for the append before them", Count: m.cfg.Waiting, Bits: waiterBits},
			{Kind: pipeline.NeedTimer, What: "the end of each of these waits", Count: m.cfg.Waiting},
			{Kind: pipeline.NeedICRC, What: "of steered requests and translated answers"},
		},
	}
}

// Kind is the registry entry of the hardened handler for the action steer.
var Kind = handler.Kind{
	Name: "steer", Actions: []rules.Action{rules.Steer}, Mode: rules.Hardened,
	New:      func(e *handler.Env) handler.Handler { return New(Config{Hold: e.Hold, Nodes: e.Nodes}) },
	Listings: []handler.Listing{handler.NewListing(keysHelp, (*Machine).Keys, printKeys)},
}

func (m *Machine) Kind() *handler.Kind { return &Kind }

//go:embed help.md
var helpText string

var keysHelp = handler.Help{
	Name:  "keys",
	Short: "Show which keys of the store Clover clients request most",
	Text:  helpText,
	Most:  "show at most this many keys; 0 means all that the switch remembers",
}

// Key is one of the most requested keys of a store, as `rdmalab switch` shows it.
type Key struct {
	Key uint64 `json:"key"`
	// Reads, Appends and Steered count the requests for the key from the time on at which the
	// switch began to count this key exactly.
	Reads   uint64 `json:"reads"`
	Appends uint64 `json:"appends"`
	Steered uint64 `json:"steered"`
	// Rate is the number of requests per second, over about the last second.
	Rate float64 `json:"rate"`
	// Waiting is how many appends and READs of the key wait in the switch for the append in flight.
	Waiting int `json:"waiting"`
	// Tail is the newest node of the key; nil means that the switch does not know it.
	Tail *Tail `json:"tail,omitempty"`
}

type Tail struct {
	Server netip.Addr `json:"server"`
	RKey   uint32     `json:"rkey"`
	VA     uint64     `json:"va"`
	// Length is the length of the node in bytes.
	Length  int   `json:"length"`
	Version uint8 `json:"version"`
	// Sequence is the place of the node in its chain. It counts from the time when the switch
	// learnt the chain.
	Sequence uint32 `json:"sequence"`
}

func printKeys(out io.Writer, host func(netip.Addr) string, list []Key) error {
	return handler.WriteTable(out, list, "no key of Clover was requested under a rule of action steer; add one: `rdmalab switch rules add server=ms0 action=steer`",
		"KEY\tRATE/s\tREADS\tAPPENDS\tSTEERED\tWAITING\tTAIL\tLENGTH\tVERSION\tSEQUENCE", func(k *Key) string {
			tail := "-\t-\t-\t-"
			if t := k.Tail; t != nil {
				tail = fmt.Sprintf("%s:%#x\t%d\t%d\t%d", host(t.Server), t.VA, t.Length, t.Version, t.Sequence)
			}
			return fmt.Sprintf("%d\t%.0f\t%d\t%d\t%d\t%d\t%s", k.Key, k.Rate, k.Reads, k.Appends, k.Steered, k.Waiting, tail)
		})
}
