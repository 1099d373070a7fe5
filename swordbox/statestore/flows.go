package statestore

import (
	"fmt"
	"io"
	"net/netip"
	"strings"

	"github.com/rdmalab/rdmalab/softrnic/clock"
	"github.com/rdmalab/rdmalab/swordbox/handler"
	"github.com/rdmalab/rdmalab/swordbox/telemetry"
)

// FlowsHelp describes the listing of flows that rules of action measure have counted most.
var FlowsHelp = handler.Help{
	Name:  "flows",
	Short: "Show the flows of packets that rules of action measure have counted most",
	Text:  helpText,
	Most:  "show at most this many flows; 0 means all that the switch remembers",
}

// Flow is a key that the switch remembers for a sketch.
type Flow struct {
	// Rules are the ids of the rules that count in the sketch.
	Rules []string      `json:"rules"`
	Key   telemetry.Key `json:"key"`
	// Count is an upper bound of what the switch has added for the key, by its own table. The true
	// amount is at least Count - Over.
	Count uint64 `json:"count"`
	Over  uint64 `json:"over"`
	// Every is how many packets there are for each one that was counted.
	Every uint64 `json:"every"`
}

// flows lists the keys that the switch remembers, sketch by sketch, those with the highest counts
// first.
func (m *Machine) flows(clock.Time) (list []Flow) {
	for _, table := range m.frames.sketches() {
		var ids []string
		every := uint64(1)
		for _, k := range m.frames.rules {
			if k.flows == table {
				ids, every = append(ids, k.counted.rule.ID), EveryOf(k.counted.rule)
			}
		}
		for _, r := range table.All() {
			list = append(list, Flow{ids, r.Key, r.Count, r.Over, every})
		}
	}
	return list
}

func printFlows(out io.Writer, host func(netip.Addr) string, list []Flow) error {
	return handler.WriteTable(out, list,
		"no packet was counted; add a rule: rdmalab switch rules add server=cn0 action=measure store=ms1",
		"FLOW\tCOUNT\tOVER\tSAMPLE\tRULES", func(f *Flow) string {
			return fmt.Sprintf("%s\t%d\t%d\t1/%d\t%s", f.Key.Text(host), f.Count, f.Over, f.Every, strings.Join(f.Rules, ","))
		})
}
