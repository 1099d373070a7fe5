package cloversteer

import (
	"fmt"
	"io"
	"net/netip"
	"text/tabwriter"

	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// Kind is the entry of the registry: rules that steer, hardened.
var Kind = handler.Kind{
	Name: "steer", Actions: []rules.Action{rules.Steer}, Mode: rules.Hardened,
	New:      func(e *handler.Env) handler.Handler { return New(Config{Hold: e.Hold, Nodes: e.Nodes}) },
	Listings: []handler.Listing{handler.NewListing(keysHelp, (*Machine).Keys, printKeys)},
}

// Kind is the machine's entry of the registry.
func (m *Machine) Kind() *handler.Kind { return &Kind }

var keysHelp = handler.Help{
	Name:  "keys",
	Short: "Show the keys of Clover that clients request most, and where their newest nodes are",
	Long: "keys shows the keys that clients request most, as a switch with a rule of action steer has counted them. It\n" +
		"counts in a count-min sketch, whose counts it halves from time to time, and keeps the first keys in a bounded\n" +
		"table. RATE is requests per second during about the last second. STEERED is how many requests the switch has\n" +
		"steered to the newest node of the key. TAIL is that node: its server, address, length and version, and its\n" +
		"position among the nodes appended since the switch knows the chain. A rule with keys=hot:8 steers the first 8\n" +
		"keys of this list.",
	Example: "  rdmalab switch keys\n" +
		"  rdmalab switch keys --watch\n" +
		"  rdmalab switch keys -o json | jq '.[0]'\n" +
		"  rdmalab switch rules add server=ms0 action=steer keys=hot:8",
	Most: "how many keys; 0: all that the switch remembers",
}

// Key is a key of a store whose requests are steered, or could be.
type Key struct {
	Key uint64 `json:"key"`
	// Reads, Appends and Steered count its requests since it was found.
	Reads   uint64 `json:"reads"`
	Appends uint64 `json:"appends"`
	Steered uint64 `json:"steered"`
	// Rate is requests a second, over the last second or so.
	Rate float64 `json:"rate"`
	// Waiting is how many appends wait for the one before.
	Waiting int `json:"waiting"`
	// Tail is its newest node; nil: it is not known.
	Tail *Tail `json:"tail,omitempty"`
}

// Tail is the newest node of a key.
type Tail struct {
	Server netip.Addr `json:"server"`
	RKey   uint32     `json:"rkey"`
	VA     uint64     `json:"va"`
	// Length in bytes.
	Length  int   `json:"length"`
	Version uint8 `json:"version"`
	// Sequence is its place among the nodes that were linked since the switch knows the chain.
	Sequence uint32 `json:"sequence"`
}

func printKeys(out io.Writer, host func(netip.Addr) string, list []Key) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no key of a store was asked for under a rule of action steer; add one: rdmalab switch rules add server=ms0 action=steer")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "KEY\tRATE/s\tREADS\tAPPENDS\tSTEERED\tWAITING\tTAIL\tLENGTH\tVERSION\tSEQUENCE") // Flush reports errors
	for _, k := range list {
		tail := "-\t-\t-\t-"
		if t := k.Tail; t != nil {
			tail = fmt.Sprintf("%s:%#x\t%d\t%d\t%d", host(t.Server), t.VA, t.Length, t.Version, t.Sequence)
		}
		fmt.Fprintf(w, "%d\t%.0f\t%d\t%d\t%d\t%d\t%s\n", k.Key, k.Rate, k.Reads, k.Appends, k.Steered, k.Waiting, tail)
	}
	return w.Flush()
}
