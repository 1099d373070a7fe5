package handler

import (
	"encoding/json"
	"fmt"
	"io"
	"iter"
	"net/netip"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/congestion"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/conntrack"
	"github.com/rdmalab/rdmalab/swordbox/pipeline"
	"github.com/rdmalab/rdmalab/swordbox/switchconn"
)

// Kind is an entry of the registry of handlers.
type Kind struct {
	// Name is the name under which the handler's counters are listed.
	Name string
	// Actions and Mode select the rules that the handler carries out.
	Actions []rules.Action
	Mode    rules.Mode
	// Selects reports whether the handler carries out rule r, whose action is in Actions and whose
	// mode is Mode; nil means that it carries out all such rules.
	Selects func(r *rules.Rule) bool
	// New makes a handler with empty tables.
	New func(e *Env) Handler
	// Listings are the lists that `rdmalab switch NAME` shows.
	Listings []Listing
}

// Serves reports whether handlers of the kind carry out rule r.
func (k *Kind) Serves(r *rules.Rule) bool {
	return k.Mode == r.Mode && slices.Contains(k.Actions, r.Action) && (k.Selects == nil || k.Selects(r))
}

// Of returns the rules of a set that handlers of the kind carry out, in their order.
func (k *Kind) Of(set *rules.Set) iter.Seq[*rules.Rule] {
	return func(yield func(*rules.Rule) bool) {
		list := set.All()
		for i := range list {
			if r := &list[i]; k.Serves(r) && !yield(r) {
				return
			}
		}
	}
}

// Env holds the functions and bounds that the program provides to its handlers.
type Env struct {
	// Moving is called before the first request of a flow moves; if it returns false, the request
	// must not move. Answered is called with the PSN of the oldest unanswered request before an
	// answer leaves the switch. Both keep the journal up to date.
	Moving   func(r *conntrack.Flow) bool
	Answered func(r *conntrack.Flow, oldest wire.PSN)
	// Failed makes the program replace a switch's connection that the handler cannot use any more.
	Failed func(c *pipeline.Ctx, k switchconn.Key, generation uint32, why string)
	// Missing says why the program has not made a switch's connection that the handler wants; "" means
	// that there is no reason yet. nil means that no reasons are known.
	Missing func(k switchconn.Key) string
	// Behind is called with the amount that rules of action count have counted and no server has
	// confirmed, whenever this amount changes. FormerlyBehind returns how much earlier incarnations
	// of the switch have counted and may have lost. Both use the journal.
	Behind         func(amount uint64)
	FormerlyBehind func() uint64
	// Silence is how long the switch retransmits requests to a server that does not answer. After
	// that it gives up the connection. 0 means the default of each handler.
	Silence time.Duration
	// Hold bounds how long a handler holds a request until the request before it is answered; 0
	// means the default of each handler.
	Hold time.Duration
	// Port returns the port of the host that has an address; -1 means that there is none.
	Port func(a netip.Addr) int
	// MAC returns the MAC address of the host or switch that has an address.
	MAC func(a netip.Addr) (wire.MAC, bool)
	// Slowing returns the congestion control of the switch's own rates for requests to a server; nil means
	// the default of each handler.
	Slowing func(server netip.Addr) congestion.Config
	// Late is true if hosts may have sent requests before the program existed.
	Late bool
	// Nodes is how many nodes of Clover stores a handler remembers; 0 means the default of each
	// handler.
	Nodes int
}

// Table is a table of the switch as an operator sees it.
type Table struct {
	Name string `json:"name"`
	Doc  string `json:"doc"`
	Used int    `json:"used"`
	// Max is the bound of Used.
	Max int `json:"max"`
	// Clear is true if an operator can clear the table.
	Clear bool `json:"clear"`
}

// Listing is a list of a handler for an operator: `rdmalab switch NAME` shows it as a table or as a
// JSON array. Make one with NewListing.
type Listing struct {
	Help
	// Items returns the present list, a slice; nil if it is empty.
	Items func(h Handler, now clock.Time) any
	// Print writes items, which are in JSON, as a table. host returns the name of the host that has
	// an address.
	Print func(w io.Writer, host func(netip.Addr) string, items []json.RawMessage) error
}

// Help describes the command of a listing.
type Help struct {
	// Name is the name of the command, and the key of the list in JSON.
	Name string
	// Short is the help of the command in one line. Text has its description and examples, as
	// Commands.Help of package store has those of a store: the section "# rdmalab switch NAME". Most
	// is the help text of the flag that bounds the list.
	Short, Text, Most string
}

// NewListing makes a listing of items of type T for handlers of type H.
func NewListing[H Handler, T any](help Help, items func(h H, now clock.Time) []T, table func(w io.Writer, host func(netip.Addr) string, items []T) error) Listing {
	return Listing{
		Help: help,
		Items: func(h Handler, now clock.Time) any {
			if mine, ok := h.(H); ok {
				if list := items(mine, now); len(list) > 0 {
					return list
				}
			}
			return nil
		},
		Print: func(w io.Writer, host func(netip.Addr) string, raw []json.RawMessage) error {
			list := make([]T, len(raw))
			for i := range raw {
				if err := json.Unmarshal(raw[i], &list[i]); err != nil {
					return fmt.Errorf("listing %s: %w", help.Name, err)
				}
			}
			return table(w, host, list)
		},
	}
}

// WriteTable writes a list as a table: the header, and a line for each item. Tabs separate columns.
// If the list is empty, WriteTable writes the text `none` instead.
func WriteTable[T any](out io.Writer, list []T, none, header string, line func(i *T) string) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, none)
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, header) // Flush reports errors
	for i := range list {
		fmt.Fprintln(w, line(&list[i]))
	}
	return w.Flush()
}
