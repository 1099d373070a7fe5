package statestore

import (
	"fmt"
	"io"
	"net/netip"
	"text/tabwriter"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/rules"
)

// MaxLabels is how many counters have a label.
const MaxLabels = 1024

// labels say which request was the last one that a counter counted, for an operator. Counters with
// the same remainder share one.
type labels [MaxLabels]label

type label struct {
	rule *rules.Rule // nil: there is none
	slot int
	from netip.Addr
	to   wire.QPN
	va   uint64
}

func (l *labels) set(x label) { l[x.slot%MaxLabels] = x }

var slotsHelp = handler.Help{
	Name:  "slots",
	Short: "Show which counter in a server's memory counts which flow or address",
	Long: "slots shows counters in the memory of servers, of rules of action count with a store, with the last request that\n" +
		"each has counted. Flows are given their counters by a hash, so several flows may share one.\n\n" +
		"  SLOT      number of the counter in its rule\n" +
		"  STORE     the server, and the OFFSET of the counter in the memory that its service lends: `rdmalab read` reads it\n" +
		"  CLIENT, SERVER, QP, ADDRESS\n" +
		"            of the last request that it has counted\n\n" +
		"The switch remembers 1024 of them; of two slots with the same remainder modulo 1024 the last one.",
	Example: "  rdmalab switch slots\n" +
		"  rdmalab read ms1 --on cn0 --at 0x48 --words 1",
	Most: "how many counters; 0: all that the switch remembers",
}

// Slot is a counter with the last request that it has counted.
type Slot struct {
	Rule    string     `json:"rule"`
	Slot    int        `json:"slot"`
	Store   netip.Addr `json:"store"`
	Offset  uint64     `json:"offset"`
	Client  netip.Addr `json:"client"`
	Server  netip.Addr `json:"server"`
	QPN     wire.QPN   `json:"qpn"`
	Address uint64     `json:"address"`
}

// slots lists the counters with labels whose rules are in force.
func (m *Machine) slots(clock.Time) (list []Slot) {
	for _, x := range m.labels {
		for i := range m.counts {
			k := &m.counts[i]
			if k.rule != x.rule || len(k.Stores) == 0 {
				continue
			}
			store, _, offset := k.Place(x.slot)
			list = append(list, Slot{x.rule.ID, x.slot, k.Stores[store], offset, x.from, x.rule.Server, x.to, x.va})
		}
	}
	return list
}

func printSlots(out io.Writer, host func(netip.Addr) string, list []Slot) error {
	if len(list) == 0 {
		_, err := fmt.Fprintln(out, "no request was counted in the memory of a server; add a rule: rdmalab switch rules add server=ms0 action=count store=ms1")
		return err
	}
	w := tabwriter.NewWriter(out, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "RULE\tSLOT\tSTORE\tOFFSET\tCLIENT\tSERVER\tQP\tADDRESS") // Flush reports errors
	for _, s := range list {
		fmt.Fprintf(w, "%s\t%d\t%s\t%#x\t%s\t%s\t%#x\t%#x\n", s.Rule, s.Slot, host(s.Store), s.Offset, host(s.Client), host(s.Server), uint32(s.QPN), s.Address)
	}
	return w.Flush()
}
