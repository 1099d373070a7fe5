package statestore

import (
	"fmt"
	"io"
	"net/netip"
	"reflect"

	"github.com/rdmalab/rdmalab/rackfile/rules"
	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/softrnic/wire"
	"github.com/rdmalab/rdmalab/swordbox/handler"
)

// MaxLabels is how many counters can have a label. A label is the last request that a counter has
// counted.
const MaxLabels = 1024

// labels holds the labels of counters, which an operator sees in a listing. Counters whose numbers
// have the same remainder modulo MaxLabels share a label.
type labels [MaxLabels]label

type label struct {
	rule *rules.Rule // nil means that there is none
	slot int         // number of the counter in its rule
	from netip.Addr  // the client
	to   wire.QPN    // the queue pair to which it sent the request
	va   uint64      // the address that the request named
}

func (l *labels) set(x label) { l[x.slot%MaxLabels] = x }

// follow is called when the list `now` of rules replaces the list `former`. It keeps the labels of
// rules that are the same in both lists, and removes all other labels.
func (l *labels) follow(former, now []counted) {
	heirs := make(map[*rules.Rule]*rules.Rule)
	for i := range former {
		for j := range now {
			if reflect.DeepEqual(former[i].rule, now[j].rule) {
				heirs[former[i].rule] = now[j].rule
			}
		}
	}
	for i := range l {
		l[i].rule = heirs[l[i].rule]
	}
}

var slotsHelp = handler.Help{
	Name:  "slots",
	Short: "Show which counter in a server's memory counts which flow or address",
	Text:  helpText,
	Most:  "show at most this many counters; 0 means all that the switch remembers",
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

// slots lists the counters that have a label and a rule in force.
func (m *Machine) slots(clock.Time) (list []Slot) {
	for _, x := range m.labels {
		for i := range m.counts {
			k := &m.counts[i]
			if k.rule != x.rule || len(k.Servers) == 0 {
				continue
			}
			store, _, offset := k.Place(x.slot)
			list = append(list, Slot{x.rule.ID, x.slot, k.Servers[store], offset, x.from, x.rule.Server, x.to, x.va})
		}
	}
	return list
}

func printSlots(out io.Writer, host func(netip.Addr) string, list []Slot) error {
	return handler.WriteTable(out, list,
		"no request was counted in the memory of a server; add a rule: rdmalab switch rules add server=ms0 action=count store=ms1",
		"RULE\tSLOT\tSTORE\tOFFSET\tCLIENT\tSERVER\tQP\tADDRESS", func(s *Slot) string {
			return fmt.Sprintf("%s\t%d\t%s\t%#x\t%s\t%s\t%#x\t%#x", s.Rule, s.Slot, host(s.Store), s.Offset, host(s.Client), host(s.Server), uint32(s.QPN), s.Address)
		})
}
