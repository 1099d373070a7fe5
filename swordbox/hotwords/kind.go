package hotwords

import (
	_ "embed" // of help.md
	"fmt"
	"io"
	"math/bits"
	"net/netip"
	"strconv"

	"github.com/rdmalab/rdmalab/nearest"
	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// Bounds of rules with action count.
const (
	// MaxTop is how many addresses a rule counts at most. MaxCounters is how many all rules of a
	// switch count together.
	MaxTop, MaxCounters = 1024, 4096
	defaultTop          = 64
)

// Keys that only rules with action count have.
const (
	keyTop  = "top"
	keyUnit = "unit"
)

// units are the values of the key unit, with the size of a unit in bytes. The first one is the
// default.
var units = []struct {
	name string
	size uint64
}{{"word", 8}, {"line", 64}, {"page", 4096}}

// Count is the action count. Its rules count the addresses that requests touch most. Rules with the
// key `store` instead count requests, by counters in the memory of servers.
var Count = rules.Register(rules.Definition{
	Name: "count", Doc: "counts the addresses that requests access most, and changes nothing; see `rdmalab switch hot`",
	Observes: true, Check: checkMode,
	Keys: []rules.Field{
		rules.Option(keyTop, "64", fmt.Sprintf("with action count: how many addresses are counted at a time, 1 to %d, and %d in all rules together; not with the key 'store'; "+
			"default: %d", MaxTop, MaxCounters, defaultTop), checkTop),
		rules.Option(keyUnit, "line", "with action count: what is counted, word (8 bytes), line (64) or page (4096); with the key 'store' only for per=address; default: word", checkUnit),
	},
	Together: checkTotal,
})

// KeyStore is the key of rules that keep their counts in the memory of servers instead of the
// switch. Package statestore carries out these rules.
const KeyStore = "store"

// inSwitch reports whether a rule keeps its counts in the memory of the switch.
func inSwitch(r *rules.Rule) bool { return r.Options[KeyStore] == "" }

func checkMode(r *rules.Rule) error {
	switch {
	case inSwitch(r) && r.Mode != rules.Hardened:
		return fmt.Errorf("action count has no mode %v without %s; leave the mode out", r.Mode, KeyStore)
	case !inSwitch(r) && r.Options[keyTop] != "":
		return fmt.Errorf("%s is the size of a table in the switch; a rule with %s has slots instead", keyTop, KeyStore)
	}
	return nil
}

func checkTop(s string) error {
	if n, err := strconv.Atoi(s); err != nil || n < 1 || n > MaxTop {
		return fmt.Errorf("%.40q is no number from 1 to %d", s, MaxTop)
	}
	return nil
}

func checkUnit(s string) error {
	names := make([]string, len(units))
	for i, u := range units {
		if names[i] = u.name; u.name == s {
			return nil
		}
	}
	return fmt.Errorf("%.40q is no unit; %suse one of %v", s, nearest.Meant(s, names), names)
}

// checkTotal reports an error if all rules together have too many counters.
func checkTotal(list []*rules.Rule) error {
	n := 0
	for _, r := range list {
		if inSwitch(r) {
			n += topOf(r)
		}
	}
	if n > MaxCounters {
		return fmt.Errorf("rules of action count have %d counters; at most %d are allowed: give them a smaller %s", n, MaxCounters, keyTop)
	}
	return nil
}

func topOf(r *rules.Rule) int {
	if n, err := strconv.Atoi(r.Options[keyTop]); err == nil {
		return n
	}
	return defaultTop
}

// ShiftOf returns log2 of a rule's unit in bytes.
func ShiftOf(r *rules.Rule) uint {
	size := units[0].size
	for _, u := range units {
		if u.name == r.Options[keyUnit] {
			size = u.size
		}
	}
	return uint(bits.TrailingZeros64(size))
}

// Kind is the entry of Counter in the registry of handlers.
var Kind = handler.Kind{
	Name: "hot", Actions: []rules.Action{Count}, Mode: rules.Hardened, Selects: inSwitch,
	New:      func(*handler.Env) handler.Handler { return New() },
	Listings: []handler.Listing{handler.NewListing(help, (*Counter).list, table)},
}

//go:embed help.md
var helpText string

var help = handler.Help{
	Name:  "hot",
	Short: "Show the addresses in the servers' memory that requests access most",
	Text:  helpText,
	Most:  "show at most this many addresses; 0 means all that the switch counts",
}

// Hot is a unit of memory that requests touch, with its counts, as a listing shows it.
type Hot struct {
	Rule   string     `json:"rule"`
	Server netip.Addr `json:"server"`
	// Address is the first byte of the unit. Unit is its size in bytes.
	Address uint64 `json:"address"`
	Unit    int    `json:"unit"`
	// Count is an upper bound of the number of requests that touched the unit. The true number is
	// at least Count - Over.
	Count uint64 `json:"count"`
	Over  uint64 `json:"over"`
	// Reads, Writes and Atomics count the requests since the address entered the table.
	Reads   uint64 `json:"reads"`
	Writes  uint64 `json:"writes"`
	Atomics uint64 `json:"atomics"`
}

func table(w io.Writer, host func(netip.Addr) string, list []Hot) error {
	return handler.WriteTable(w, list, "no request was counted; add a rule: rdmalab switch rules add server=ms0 action=count",
		"SERVER\tADDRESS\tUNIT\tCOUNT\tOVER\tREADS\tWRITES\tATOMICS\tRULE", func(h *Hot) string {
			return fmt.Sprintf("%s\t%#x\t%d\t%d\t%d\t%d\t%d\t%d\t%s", host(h.Server), h.Address, h.Unit, h.Count, h.Over, h.Reads, h.Writes, h.Atomics, h.Rule)
		})
}
