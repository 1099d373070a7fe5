package experiment

import (
	"fmt"
	"math"
	"time"

	"github.com/rdmalab/rdmalab/store/kv"
)

// StoresRack is the rack file for figure stores.
const StoresRack = "topo/racks/stores-slow.yaml"

// The panels of figure stores on a rack, but for the name of the store.
var storesNumbers = []struct {
	name  string
	value func(r *StoreResult) float64
}{
	{"bulk, share of the ports", func(r *StoreResult) float64 { return r.Bulk }},
	{"operations, 1000/s", func(r *StoreResult) float64 { return r.Throughput() / 1e3 }},
	{"READ p50, us", func(r *StoreResult) float64 { return float64(r.Percentile(kv.KindRead, 50)) / 1e3 }},
	{"READ p99, us", func(r *StoreResult) float64 { return float64(r.Percentile(kv.KindRead, 99)) / 1e3 }},
	{"WRITE p50, us", func(r *StoreResult) float64 { return float64(r.Percentile(kv.KindUpdate, 50)) / 1e3 }},
	{"WRITE p99, us", func(r *StoreResult) float64 { return float64(r.Percentile(kv.KindUpdate, 99)) / 1e3 }},
}

// storesOnRack is figure stores: the congestion control is that of the rack file.
func storesOnRack(quick bool) figure {
	f := figure{
		key: "stores", named: true, x: "beside the clients", unit: "thousand operations a second, us", format: "%.4g",
		title: fmt.Sprintf("%d clients of a store, half of whose operations write (Zipf 0.99), beside bulk senders", bulkClients),
		why: []string{
			fmt.Sprintf("this figure needs %d compute hosts for each memory server beside those of the clients: rdmalab up -f %s", BulkSenders, StoresRack),
			"bulk: as frames take the link; operations that fail, or whose value is wrong, fail the figure",
		},
	}
	for _, store := range bulkStores {
		for _, x := range []string{BulkIdle, BulkByFile} {
			l := repeated{ccStore{store, x, quick}, 1}
			for i, n := range storesNumbers {
				if i == 0 && x == BulkIdle {
					continue // there is none
				}
				f.add(
					ours(store+": "+n.name, twinOnRack, x, l, func(o *outcome) float64 { return n.value(o.store) }),
					ours(store+": "+n.name, twinInSim, x, l, func(o *outcome) float64 { return n.value(o.store.Twin) }),
				)
			}
		}
	}
	return f
}

// rackTimes are the times of a load on a rack, by its clock.
func (l ccStore) rackTimes() (warm, run time.Duration) {
	if l.quick {
		return 5 * time.Millisecond, 10 * time.Millisecond
	}
	return 20 * time.Millisecond, 40 * time.Millisecond
}

// near reports whether a number of the rack is within 10 % of the simulator's.
func near(rack, sim float64) bool { return math.Abs(rack/sim-1) <= 0.10 }
