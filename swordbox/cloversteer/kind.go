package cloversteer

import (
	"fmt"
	"io"
	"net/netip"

	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Kind is the registry entry of the hardened handler for the action steer.
var Kind = handler.Kind{
	Name: "steer", Actions: []rules.Action{rules.Steer}, Mode: rules.Hardened,
	New:      func(e *handler.Env) handler.Handler { return New(Config{Hold: e.Hold, Nodes: e.Nodes}) },
	Listings: []handler.Listing{handler.NewListing(keysHelp, (*Machine).Keys, printKeys)},
}

// Kind returns the machine's registry entry.
func (m *Machine) Kind() *handler.Kind { return &Kind }

var keysHelp = handler.Help{
	Name:  "keys",
	Short: "Show which keys of the store Clover clients request most",
	Long: "keys shows the keys of the store Clover that clients request most, hottest first. The switch counts requests under\n" +
		"hardened rules of action steer. In Clover a node is one version of a value. A write appends a node to the chain of\n" +
		"its key by a CAS. The newest node, the tail, has the present value.\n\n" +
		"  RATE/s    requests per second, measured over about the last second\n" +
		"  READS     number of READs since the key came into the list\n" +
		"  APPENDS   number of appends since the key came into the list\n" +
		"  STEERED   how many of these READs and appends the switch has sent to the tail, instead of the older node that the\n" +
		"            client named\n" +
		"  WAITING   number of appends that wait in the switch until the previous append is answered\n" +
		"  TAIL      server and address of the tail; - if the switch does not know it\n" +
		"  LENGTH    bytes of the tail\n" +
		"  VERSION   number in the tail's header that changes when the memory of a node is reused\n" +
		"  SEQUENCE  position of the tail among the nodes that were appended since the switch learnt the chain\n\n" +
		"The list is approximate. The switch keeps a bounded number of keys, and regularly halves the numbers\n" +
		"by which it ranks them. So a key that is no longer requested leaves the list. A rule with keys=hot:8 steers the\n" +
		"first 8 keys of the list.",
	Example: "  rdmalab switch keys\n" +
		"  rdmalab switch keys --watch\n" +
		"  rdmalab switch keys -o json | jq '.[0]'\n" +
		"  rdmalab switch rules add server=ms0 action=steer keys=hot:8",
	Most: "show at most this many keys; 0 means all that the switch remembers",
}

// Key is one of the most requested keys of a store, as `rdmalab switch` shows it.
type Key struct {
	Key uint64 `json:"key"`
	// Reads, Appends and Steered count the requests for the key since the switch has counted this
	// key exactly.
	Reads   uint64 `json:"reads"`
	Appends uint64 `json:"appends"`
	Steered uint64 `json:"steered"`
	// Rate is the number of requests per second, over about the last second.
	Rate float64 `json:"rate"`
	// Waiting is how many appends to the key wait in the switch for the append in flight.
	Waiting int `json:"waiting"`
	// Tail is the newest node of the key; nil means that the switch does not know it.
	Tail *Tail `json:"tail,omitempty"`
}

// Tail is the newest node of a key.
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
	return handler.WriteTable(out, list, "no key of Clover was requested under a rule of action steer; add one: rdmalab switch rules add server=ms0 action=steer",
		"KEY\tRATE/s\tREADS\tAPPENDS\tSTEERED\tWAITING\tTAIL\tLENGTH\tVERSION\tSEQUENCE", func(k *Key) string {
			tail := "-\t-\t-\t-"
			if t := k.Tail; t != nil {
				tail = fmt.Sprintf("%s:%#x\t%d\t%d\t%d", host(t.Server), t.VA, t.Length, t.Version, t.Sequence)
			}
			return fmt.Sprintf("%d\t%.0f\t%d\t%d\t%d\t%d\t%s", k.Key, k.Rate, k.Reads, k.Appends, k.Steered, k.Waiting, tail)
		})
}
